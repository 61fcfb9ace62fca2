"""A check of sliding windows: what has left the window is gone, what is in it is seen, with and without a cache."""

from typing import Any

from .check import NotApplicable
from .decoding import LONGEST
from .register import model_check
from .rope_modules import config_of
from .subject import Subject, rounding
from .verdict import Measured, worst


def windows(config: Any) -> list[int | None]:
    """Tokens of the sliding window of each layer, the query included; None: it sees everything."""
    kinds = getattr(config, "layer_types", None)
    size = getattr(config, "sliding_window", None)
    if kinds is None:
        return [size] * config.num_hidden_layers
    return [size if kind == "sliding_attention" else None for kind in kinds]


@model_check(
    "window_reach",
    "window",
    meaning="The window is wider or narrower than the model was trained with, or the cache keeps or drops other keys than a forward.",
    cause="An inclusive bound where an exclusive one is meant, or eviction that counts from the end of a chunk.",
)
def window_reach(subject: Subject) -> Measured:
    """The first token moves the logits of the tokens in its window, and none beyond the windows of all layers together.

    Counts the tokens for which that is not so.
    """
    subject.requires("causal")
    widths = windows(config_of(subject))
    if None in widths:
        raise NotApplicable(f"{widths.count(None)} of its {len(widths)} layers see everything")
    reach = sum(w - 1 for w in widths)
    if reach + 8 > LONGEST:
        raise NotApplicable(f"its windows reach {reach} tokens, more than the {LONGEST} of a check; check a tiny model")
    ways = {"one forward": lambda s, ids: s.logits(ids)}
    if "cache" not in subject.facts.lacks:
        ways |= {f"chunks of {n}": lambda s, ids, n=n: s.decode(ids, (n,)) for n in (1, 5)}
    return worst(_counted(subject, min(widths), reach, way, run) for way, run in ways.items())


def _counted(subject: Subject, narrowest: int, reach: int, way: str, run: Any) -> Measured:
    ids = subject.ids(reach + 8, rows=1)
    other = ids.clone()
    other[:, 0] = 3 + (other[:, 0] - 2) % (subject.facts.vocab - 3)
    a, b = (run(subject.fresh(), x) for x in (ids, other))
    moved = (a - b).abs().amax((0, 2)) > rounding(subject, a) / 20
    lost, beyond = int((~moved[:narrowest]).sum()), int(moved[reach + 1 :].sum())
    said = f"{way}: {lost} tokens in the window of {narrowest} do not see the first, {beyond} beyond {reach} do"
    return Measured(float(lost + beyond), 0.0, said if lost + beyond else "")
