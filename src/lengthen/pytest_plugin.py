"""The pytest plugin `lengthen`: tests marked `lengthen_check` run once per check. Imports nothing heavy until one is met.

@pytest.mark.lengthen_check(make_my_model, expected={"position_gaps": "borders follow positions"})
def test_my_model(lengthen_check):
    lengthen_check()
"""

import pytest

MARK = "lengthen_check"


def pytest_configure(config: pytest.Config) -> None:
    """Declares the mark, so that `--strict-markers` accepts it."""
    config.addinivalue_line(
        "markers", f"{MARK}(*targets, seed=0, checks=None, expected=None): run once per check of lengthen.conformance"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per check for every function with the mark."""
    mark = metafunc.definition.get_closest_marker(MARK)
    if mark is None or MARK not in metafunc.fixturenames:
        return
    from .conformance.parametrize import parametrize_with_checks

    made = parametrize_with_checks(*mark.args, **mark.kwargs).mark
    values = [pytest.param(_confirming(*p.values), marks=p.marks, id=p.id) for p in made.args[1]]
    metafunc.parametrize(MARK, values)


def _confirming(subject, check):
    """A function that runs the check and raises AssertionError, with meaning and cause, where it fails."""
    return lambda: check(subject).confirm()
