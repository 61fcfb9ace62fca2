"""Rooms import only from those above them, in the order of DESIGN.md section 4."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "lengthen"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = re.findall(
    r"^  (\w+)/ ", (ROOT / "DESIGN.md").read_text(encoding="utf-8").split("## 4. Rooms")[1].split("```")[1], re.M
)


def room(parts: tuple[str, ...]) -> str | None:
    """The room of a dotted or file path below the package; None for the package itself."""
    return parts[0] if parts and not parts[0].endswith(".py") else None


def imported(path: Path) -> set[tuple[str, ...]]:
    """What a file imports from the package, anywhere in it, as paths below the package."""
    here = ("lengthen", *path.relative_to(SOURCE).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {tuple(a.name.split(".")) for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) + 1 - node.level] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            found |= {(*module, a.name) for a in node.names}
    return {names[1:] for names in found if names[0] == "lengthen"}


def test_the_design_lists_the_rooms():
    assert ROOMS[:4] == ["core", "methods", "backends", "models"]
    there = {room(p.relative_to(SOURCE).parts) for p in FILES} - {None}
    assert there <= set(ROOMS), f"not in DESIGN.md section 4: {sorted(there - set(ROOMS))}"


@pytest.mark.parametrize("path", [p for p in FILES if p.parent != SOURCE], ids=lambda p: p.relative_to(SOURCE).as_posix())
def test_imports_go_upward(path):
    own = room(path.relative_to(SOURCE).parts)
    below = {".".join(names) for names in imported(path) if room(names) in ROOMS[ROOMS.index(own) + 1 :]}
    assert not below, f"{own} imports from rooms below it: {sorted(below)}"


def test_core_knows_no_method_by_name():
    names = {p.stem for p in (SOURCE / "methods").glob("*.py")} - {"__init__"}
    for path in (SOURCE / "core").glob("*.py"):
        strings = {n.value for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Constant)}
        assert not strings & names, f"{path.name} names a method: {sorted(strings & names)}"


def test_there_is_no_drawer_for_everything():
    assert not [
        p for p in (*FILES, *(ROOT / "tests").rglob("*.py")) if p.name in ("utils.py", "helpers.py", "misc.py", "common.py")
    ]
