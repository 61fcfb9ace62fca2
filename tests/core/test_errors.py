"""Errors are sentences with both numbers and the way out, and can be caught as what Python users expect."""

import pytest

from lengthen.core.errors import (
    LengthenError,
    LengthError,
    Refusal,
    UnknownNameError,
    UsageError,
    require_count,
    require_even,
    require_positive,
    unknown,
)


def test_kinds():
    assert issubclass(LengthError, UsageError) and issubclass(UnknownNameError, UsageError)
    assert issubclass(UsageError, ValueError) and issubclass(Refusal, NotImplementedError)
    assert issubclass(UsageError, LengthenError) and issubclass(Refusal, LengthenError)


def test_unknown_names_near_ones_or_all():
    known = ["xpos", "rope", "alibi"]
    assert str(unknown("method", "ALiBy", known)) == "There is no method named 'ALiBy'. Did you mean 'alibi'?"
    assert str(unknown("method", "zzz", known)) == "There is no method named 'zzz'. Known: alibi, rope, xpos."


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "3", None, float("nan")])
def test_counts(value):
    with pytest.raises(UsageError, match=r"'tokens' of Window must be a whole number of tokens, at least 1, got "):
        require_count("Window", "tokens", value, "tokens")


@pytest.mark.parametrize("value", [0, -1.5, True, "3", None, float("nan"), float("inf"), 10**400])
def test_positives(value):
    with pytest.raises(UsageError, match=r"'base' of rope must be a positive, finite number of radians, got "):
        require_positive("rope", "base", value, "radians")


def test_even_sizes():
    for good in (2, 4, 128):
        require_even("rope", "size", good)
    with pytest.raises(UsageError, match=r"must be even, got 7. Use 6 or 8"):
        require_even("rope", "size", 7)
    with pytest.raises(UsageError, match=r"at least 2, got 0"):
        require_even("rope", "size", 0)
