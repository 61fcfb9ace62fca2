"""How rows are shown: the columns and the note of each kind of report."""

from dataclasses import dataclass

Column = tuple[str, str, str]
"""(heading, key of a row, how to print it: a format such as '.2f', a unit of UNITS, or 'quartiles' of that key)."""


@dataclass(frozen=True)
class Page:
    """A kind of report."""

    title: str
    note: str
    """What the numbers are."""
    columns: tuple[Column, ...]
    short: tuple[Column, ...]
    """What fits a terminal."""


_CASE: tuple[Column, ...] = (
    ("encoding", "method", ""),
    ("backend", "backend", ""),
    ("type", "dtype", ""),
    ("tokens", "length", "d"),
    ("pass", "kind", ""),
    ("ms", "seconds", "ms"),
    ("ratio", "ratio", ".2f"),
)
_ATTENTION: tuple[Column, ...] = (
    *_CASE,
    ("quartiles", "ratio", "quartiles"),
    ("ideal", "ideal", ".3g"),
    ("ratio / ideal", "over_ideal", ".2f"),
    ("extra MiB", "extra_bytes", "MiB"),
    ("error", "error", ".1e"),
    ("SDPA's error", "peer_error", ".1e"),
    ("gradient error", "gradient_error", ".1e"),
    ("SDPA's gradient error", "peer_gradient_error", ".1e"),
)
_ATTENTION_SHORT: tuple[Column, ...] = (
    *_CASE,
    ("/ideal", "over_ideal", ".2f"),
    ("MiB", "extra_bytes", "MiB"),
    ("error", "error", ".0e"),
)
_ATTENTION_NOTE = (
    "Ratio: time over that of PyTorch's causal attention without any encoding, same shape and pass, measured in turn in the same "
    "run; median and quartiles over rounds. Ideal: share of causal attention's scores that the pattern shows. Extra: peak memory "
    "beyond inputs and outputs. Errors: largest, against float64, over sampled queries."
)
ATTENTION = Page("Attention", _ATTENTION_NOTE, _ATTENTION, _ATTENTION_SHORT)

_MODEL: tuple[Column, ...] = (
    ("task", "task", ""),
    ("encoding", "method", ""),
    ("type", "dtype", ""),
    ("peer", "peer", ""),
    ("tokens/s", "tokens_per_s", ",.0f"),
    ("the peer's", "peer_tokens_per_s", ",.0f"),
    ("speed", "speed", ".2f"),
    ("quartiles", "speed", "quartiles"),
    ("rounds", "rounds", "d"),
)
_MODEL_SHORT = tuple(c for c in _MODEL if c[1] not in ("peer_tokens_per_s", "rounds"))
_MODEL_NOTE = (
    "Speed: tokens per second over the peer's, both in turn in the same run; median and quartiles over rounds. Plain causal: the "
    "same model, its attention replaced by PyTorch's causal one, without positions."
)
MODEL = Page("Models", _MODEL_NOTE, _MODEL, _MODEL_SHORT)
