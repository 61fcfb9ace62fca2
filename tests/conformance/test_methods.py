"""Every registered method and declared variant passes every check that applies to it."""

from lengthen.conformance import parametrize_with_checks


@parametrize_with_checks()
def test_conforms(subject, check):
    check(subject).confirm()
