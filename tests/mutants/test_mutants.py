"""Each planted bug turns its check red, its sound counterpart keeps it green, and no check goes without a bug."""

import pytest

from lengthen.conformance import CHECKS, Check, check_scheme

from . import machinery, native, positions, rotations, terms

MUTANTS = (*terms.MUTANTS, *rotations.MUTANTS, *positions.MUTANTS, *machinery.MUTANTS, *native.MUTANTS)


def name_of(mutant):
    by = mutant.caught_by.name if isinstance(mutant.caught_by, Check) else mutant.caught_by
    return f"{mutant.name.replace(' ', '_')}-{by}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=name_of)
def test_is_caught(mutant):
    with mutant.bench():
        (sound,) = check_scheme(mutant.sound, checks=[mutant.caught_by])
    with mutant.machinery():
        (broken,) = check_scheme(mutant.broken, checks=[mutant.caught_by])
    assert sound.status == "pass", sound
    assert broken.status == "fail", broken
    assert "Error:" not in broken.reason, "caught by a crash, not by a measurement"


def test_every_check_can_fail():
    assert {m.caught_by for m in MUTANTS if isinstance(m.caught_by, str)} == set(CHECKS)
