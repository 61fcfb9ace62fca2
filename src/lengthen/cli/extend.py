"""`lengthen extend`: a checkpoint with more context, as a folder, and what was proven of it."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

DTYPES = ("auto", "float32", "bfloat16", "float16")

if TYPE_CHECKING:
    from lengthen.hf import Exported, Extension
    from lengthen.hf.export import ServerFlags


def register(app: typer.Typer) -> None:
    app.command("extend")(extend)


def extend(
    model: str = typer.Argument(help="A hub name, a folder, a .gguf file, or 'smollm2'."),
    method: str = typer.Option(help="A spec, such as yarn, ntk:factor=6 or self_extend+log_n:clip=true."),
    factor: float = typer.Option(None, help="The new length over the trained one."),
    target: str = typer.Option(None, help="The new length instead: 16k, 16384 or 4x."),
    original: str = typer.Option(None, help="The trained length, where the checkpoint says it wrongly: 8k."),
    layers: str = typer.Option(
        None, help="Layers of this type only, e.g. full_attention, where types have frequencies of their own."
    ),
    out: Path = typer.Option(None, help="Write the model to this new folder."),
    form: str = typer.Option(
        None, help="'vanilla' for transformers alone, 'lengthen' for lengthen.load.", show_default="vanilla where it can be"
    ),
    servers: bool = typer.Option(False, "--servers", help="Also print flags for vLLM, SGLang and llama.cpp."),
    dtype: str = typer.Option("auto", help="float32, bfloat16 or float16.", show_default="as saved"),
    remote_code: bool = typer.Option(False, "--trust-remote-code", help="Run Python code that the checkpoint brings."),
    tune: str = typer.Option(
        None, metavar="WAY", help="Train it on for the new length first: pose, full, s2, randomised or drope."
    ),
    steps: int = typer.Option(1000, help="With --tune: training steps. `lengthen tune` has more settings."),
    data: str = typer.Option("demo", help="With --tune: 'demo', a shipped corpus, a file, a folder, or 'hf:NAME'."),
    lora: int = typer.Option(None, metavar="R", help="With --tune: LoRA of rank R.", show_default="all weights"),
    resume: bool = typer.Option(False, help="With --tune: go on in --out, to the same numbers."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Decide and prove everything, write nothing."),
    as_json: bool = typer.Option(False, "--json", help="Print a JSON object."),
) -> None:
    """Give a checkpoint more context, prove it, and write it as a folder.

    The checkpoint's own logits are reproduced first. Frequencies that no length changes are written as a plain configuration,
    which needs nothing of lengthen; other methods as a folder that lengthen.load opens.

    Examples:

      lengthen extend smollm2 --method yarn --factor 4 --dry-run --servers

      lengthen extend smollm2 --method yarn --factor 4 --out smollm2-32k

      lengthen extend smollm2 --method self_extend --target 16k --out smollm2-se --json

      lengthen extend smollm2 --method yarn --target 16k --tune pose --lora 8 --steps 200 --out runs/pose
    """
    if tune is not None:
        return _tuned(model, method, factor, target, tune, steps, data, lora, out, resume, as_json)
    _require_sense(method, form, out, dtype, dry_run)
    extension, tokenizer = _extended(model, method, factor, target, original, layers, dtype, remote_code)
    if not as_json:
        print(extension)
    written = None if dry_run else _written(extension, out, tokenizer, form)
    flags = _flags(extension) if servers else ()
    if as_json:
        print(json.dumps(_facts(model, extension, written, flags), indent=2))
        return
    for line in (written if written is not None else _would(extension, form), *flags):
        print(line)


def _tuned(
    model: str,
    method: str,
    factor: float | None,
    target: str | None,
    way: str,
    steps: int,
    data: str,
    lora: int | None,
    out: Path | None,
    resume: bool,
    as_json: bool,
) -> None:
    """As `lengthen tune` does it."""
    from lengthen.core import UsageError

    from .tune import tune

    if (factor is None) == (target is None):
        raise UsageError(f"Tuning needs the new length once, as --factor or --target; got {factor} and {target}.")
    reach = target if target is not None else f"{factor:g}x"
    place = out if out is not None else Path("runs/tune")
    tune(
        model,
        reach,
        method,
        way,
        None,
        steps,
        data,
        2e-5,
        8,
        1,
        "fp32",
        lora,
        0.0,
        2,
        None,
        0.0,
        4,
        None,
        None,
        0,
        place,
        resume,
        as_json,
    )


def _require_sense(method: str, form: str | None, out: Path | None, dtype: str, dry_run: bool) -> None:
    """Refuses before a model is loaded."""
    from lengthen.core import UsageError, parse
    from lengthen.core.errors import unknown
    from lengthen.hf.export.folder import require_free
    from lengthen.hf.export.plan import FORMS

    parse(method)
    if form is not None and form not in FORMS:
        raise unknown("form", form, FORMS)
    if dtype not in DTYPES:
        raise unknown("dtype", dtype, DTYPES)
    if out is None and not dry_run:
        raise UsageError("Say where to write the model, --out DIR, or --dry-run to write nothing.")
    if out is not None:
        require_free(out)


def _extended(
    model: str,
    method: str,
    factor: float | None,
    target: str | None,
    original: str | None,
    layers: str | None,
    dtype: str,
    remote_code: bool,
) -> tuple["Extension", Any]:
    from lengthen.advise.amounts import tokens_of
    from lengthen.hf import extend, load
    from lengthen.hf.asked import trained_tokens

    print(f"Loading {model}.", file=sys.stderr)
    loaded, tokenizer = load(model, dtype=dtype, trust_remote_code=remote_code)
    first = tokens_of(original, 1) if original is not None else None
    trained = first if first is not None else trained_tokens(loaded.config, layers)
    tokens = tokens_of(target, trained) if target is not None else None
    print("Reproducing its own logits.", file=sys.stderr)
    request = method if layers is None else {layers: method}
    return extend(loaded, request, factor=factor, tokens=tokens, original=first), tokenizer


def _written(extension: "Extension", out: Path, tokenizer: Any, form: str | None) -> "Exported":
    from lengthen.hf import export

    print(f"Writing {out}.", file=sys.stderr)
    return export(extension, out, tokenizer=tokenizer, form=form)


def _would(extension: "Extension", form: str | None) -> str:
    """What an export would do, proven as far as it is without one."""
    from lengthen.hf.export import planned

    return f"Nothing was written. {planned(extension, form)}"


def _flags(extension: "Extension") -> "tuple[ServerFlags, ...]":
    from lengthen.hf.export import server_flags

    return server_flags(extension)


def _facts(model: str, extension: "Extension", written: "Exported | None", flags: "tuple[ServerFlags, ...]") -> dict[str, Any]:
    lengths = extension.lengths
    return {
        "model": model,
        "method": extension.request if isinstance(extension.request, str) else dict(extension.request),
        "factor": lengths.factor,
        "trained_length": lengths.original,
        "tokens": lengths.maximum,
        "decided": lengths.why,
        "route": extension.route,
        "layers": extension.layers,
        "turned_layers": extension.turned,
        "gap": extension.gap,
        "export": None if written is None else written.to_json(),
        "servers": [server.to_json() for server in flags],
    }
