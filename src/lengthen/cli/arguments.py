"""How the verbs read their arguments."""

import re

from typer.core import TyperCommand


class Spread(TyperCommand):
    """Lets an option that repeats take several values at once: `--methods rope alibi` is `--methods rope --methods alibi`."""

    def parse_args(self, ctx, args: list[str]) -> list[str]:
        repeats = {o for p in self.params if getattr(p, "multiple", False) for o in p.opts}
        return super().parse_args(ctx, list(spread(args, repeats)))


def spread(args: list[str], repeats: set[str]):
    """The arguments with each value of a repeating option preceded by the option."""
    option, first = None, False
    for arg in args:
        if arg.startswith("--") or (arg.startswith("-") and not arg[1:2].isdigit()):
            option, first = (arg, True) if arg in repeats else (None, False)
            yield arg
        else:
            if option is not None and not first:
                yield option
            first = False
            yield arg


def names(values: list[str]) -> list[str]:
    """`["rope,alibi", "xpos:scale_base=256,interleaved=True"]` -> one spec each; commas inside options stay."""
    return [n.strip() for v in values for n in re.split(r",(?![a-z_]+=)", v) if n.strip()]


def lengths(values: list[str], train_length: int) -> tuple[int, ...]:
    """`1x,2x,512` -> tokens; `Nx` means N times the training length."""
    return tuple(_length(part.strip(), train_length) for v in values for part in v.split(",") if part.strip())


def _length(text: str, train_length: int) -> int:
    from lengthen.core.errors import UsageError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)(x?)", text.lower())
    if not found:
        raise UsageError(f"The length {text!r} is neither a number of tokens nor a multiple such as '4x'.")
    value = float(found.group(1)) * (train_length if found.group(2) else 1)
    if value != int(value):
        raise UsageError(f"The length {text!r} is {value} tokens at training length {train_length}; give a whole number.")
    return int(value)
