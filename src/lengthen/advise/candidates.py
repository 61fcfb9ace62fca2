"""What is tried, as data: specs for a trained length and a target, in the order in which they are first read."""

from dataclasses import dataclass
from math import ceil, log

from lengthen.core import UsageError
from lengthen.core.registry import canonical, parse

AS_IS = "none"
"""The name of the checkpoint without any change."""
FREE, BETTER, MEANT = "no", "helps", "yes"
"""Whether a method needs tuning: published as training-free; published both ways; published for continued training."""


UNTURNED = (AS_IS, "alibi_interpolation", "alibi_interpolation:slopes=geometric", "learned_interpolation")
"""For checkpoints without frequencies: their biases or their table; the other kind is refused at once."""


@dataclass(frozen=True)
class Candidate:
    """A method with its options."""

    spec: str
    """What `lengthen.extend` takes, or `AS_IS`."""
    tuning: str
    """FREE, BETTER or MEANT."""


TUNING = {
    **dict.fromkeys(("pi", "abf", "llama3", "giraffe_power", "giraffe_truncated", "longrope", "learned_interpolation"), MEANT),
    **dict.fromkeys(("yarn", "ntk_by_parts", "resonance"), BETTER),
}
"""By method, where it is not training-free: PI (arXiv:2306.15595), ABF (2309.16039), Llama 3 (2407.21783), Giraffe
(2308.10882), LongRoPE (2402.13753); YaRN, NTK-by-parts (2309.00071) and Resonance (2403.00071) are reported both ways."""


def candidates(trained: int, target: int, base: float | None) -> tuple[Candidate, ...]:
    """All that are tried without --methods; factors that are not written follow from the target.

    trained, target: tokens, L and T; s = T/L. base: of the checkpoint's own frequencies; None: it has none,
    and `UNTURNED` is tried.

    NTK-aware is tried at s and at 1.5 s, since its highest pairs are not interpolated and it reaches less than s; dynamic
    NTK grows as in transformers; ABF takes s^2 times the base (Xiong et al. 2023 took 50 times for s = 8); Self-Extend keeps
    L/8 tokens and takes groups that reach 1.5 T, since its authors advise against more than two thirds of its capacity.
    """
    if base is None:
        return tuple(Candidate(spec, tuning(spec)) for spec in UNTURNED)
    factor = target / trained
    first = [AS_IS, "yarn", "ntk", "pi", "ntk_by_parts", f"ntk:factor={_short(1.5 * factor)}", "llama3", "resonance"]
    window = max(1, trained // 8)
    group = max(2, ceil((1.5 * target - window) / max(1, trained - window)))
    first += ["streaming_llm", f"self_extend:window={window},group={group}", f"dynamic_ntk:growth={_short(factor)}"]
    first += ["dual_chunk", "yarn+log_n:clip=True"]
    first += ["lm_infinite", "rerope", f"abf:adjusted={_short(base * factor**2)}"]
    first += [*_string(trained, target), *_leaky(trained, target)]
    first += ["yarn:factor=" + _short(1.5 * factor), "log_n:clip=True", "giraffe_power", "giraffe_truncated", "sinks", "window"]
    return tuple(Candidate(spec, tuning(spec)) for spec in first)


def named(specs: list[str]) -> tuple[Candidate, ...]:
    """Those that were asked for; the checkpoint as it is is always read, and first. Raises UsageError with near names."""
    found = dict.fromkeys([AS_IS, *(canonical(spec) for spec in specs if spec.strip().lower() != AS_IS)])
    if len(found) == 1:
        raise UsageError("Only the checkpoint as it is was asked for. Name a method to compare it with, as in --methods yarn.")
    return tuple(Candidate(spec, tuning(spec)) for spec in found)


def tuning(spec: str) -> str:
    """The most that one of its parts needs."""
    parts = [] if spec == AS_IS else [TUNING.get(m.name, FREE) for m, _ in parse(spec)]
    return max(parts, key=(FREE, BETTER, MEANT).index, default=FREE)


def _string(trained: int, target: int) -> list[str]:
    """STRING reaches L + S - W, and its true distances S end at L: it serves up to about twice the trained length."""
    local = min(128, max(1, trained // 64))
    shift = min(trained, target - trained + local)
    return [f"string:shift={shift},local={local}"] if target <= 2 * trained and shift >= local else []


def _leaky(trained: int, target: int) -> list[str]:
    """The factor with which the farthest token stands at the trained length: (T - w) / (L - w)."""
    window = max(1, trained // 4)
    return [f"leaky_rerope:factor={_short((target - window) / max(1, trained - window))}"] if target > trained else []


def _short(value: float) -> str:
    """At most three digits behind the point, rounded up so that a factor still reaches; large numbers whole."""
    digits = 3 if abs(log(max(value, 1e-9), 10)) < 4 else 0
    scaled = ceil(value * 10**digits - 1e-9) / 10**digits
    return f"{scaled:g}" if digits else str(int(scaled))
