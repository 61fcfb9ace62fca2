"""The page of methods is what the registry says."""

import re
import sys
from pathlib import Path

from lengthen.core import methods
from lengthen.report.describe import facts, methods_markdown

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def test_the_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == methods_markdown(), "run: python -m lengthen.report.describe > docs/methods.md"


def test_every_option_of_every_method_is_explained():
    assert not [(f["name"], o["name"]) for f in facts() for o in f["options"] if not o["about"]]


def test_every_method_names_its_paper_and_family():
    assert not [m.name for m in methods().values() if not m.family]
    elsewhere = [m for m in methods().values() if m.paper is None]
    # What was never a paper names author, year and place where its file begins.
    assert not [m.name for m in elsewhere if not re.search(r"\(.+ 20\d\d, .+\)", sys.modules[m.factory.__module__].__doc__)]
