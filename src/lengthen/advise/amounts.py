"""Lengths and times as people write them: 16k, 2x, 20m."""

import re

from lengthen.core import UsageError

TOKENS = {"": 1, "k": 1024, "m": 1024 * 1024}
"""What a letter behind a number of tokens multiplies it by."""
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
"""What a letter behind a time stands for; without one, seconds."""


def tokens_of(text: str, trained: int) -> int:
    """'16384', '16k' (of 1024), or '2x' of the trained length -> tokens. Raises UsageError for what is none of these."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmx]?)", text.strip().lower())
    if found is None:
        raise UsageError(f"The target {text!r} is no length. Write tokens, as in 16384 or 16k, or a multiple, as in 2x.")
    value = float(found[1]) * (trained if found[2] == "x" else TOKENS[found[2]])
    if value != int(value) or value < 1:
        raise UsageError(f"The target {text!r} is {value:g} tokens. Give a whole number of at least 1.")
    return int(value)


def seconds_of(text: str) -> float:
    """'20m', '90s', '1h30m' or a bare number of seconds -> seconds. Raises UsageError for what is none of these, and for 0."""
    plain = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([smh]?)", plain)
    if not parts or "".join(n + unit for n, unit in parts) != plain or (len(parts) > 1 and any(not unit for _, unit in parts)):
        raise UsageError(f"The budget {text!r} is no time. Write it as in 20m, 90s or 1h30m.")
    seconds = sum(float(n) * SECONDS[unit if unit else "s"] for n, unit in parts)
    if seconds <= 0:
        raise UsageError(f"The budget {text!r} is no time at all. Give at least a second.")
    return seconds


def spoken(seconds: float) -> str:
    """A time in whole seconds, minutes or hours: '48 s', '2 min 40 s', '1 h 5 min'."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
