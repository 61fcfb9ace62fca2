"""Splits divide whole documents, the same on every machine, with every source on both sides."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthen.core.errors import UsageError
from lengthen.data import Document, prepare, split
from lengthen.data.documents import collect


def corpus(sizes, source="made"):
    """Documents of these many characters, all different."""
    return collect(
        "made", [Document(f"{n}", f"{n:06d} ".ljust(size, "abcdefg"[n % 7]), source) for n, size in enumerate(sizes)]
    )


def names(part):
    return {(d.source, d.name) for d in part.documents}


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.dictionaries(st.sampled_from("xyz"), st.lists(st.integers(10, 60), min_size=2, max_size=9), min_size=1),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 5),
    least=st.integers(0, 60),
)
def test_both_sides_have_every_source_and_nothing_is_lost_or_cut(sizes, share, seed, least):
    whole = collect(
        "made", [Document(str(n), f"{s} {n} ".ljust(size, "e"), s) for s, many in sizes.items() for n, size in enumerate(many)]
    )
    longest = max(len(d.text) for d in whole.documents)
    if longest < least:
        with pytest.raises(UsageError, match=f"one of at most {longest}; {least} are needed"):
            split(whole, share, seed, least)
        return
    train, held = split(whole, share, seed, least)
    assert sorted(train.documents + held.documents, key=repr) == sorted(whole.documents, key=repr)
    assert set(train.sources) == set(held.sources) == set(whole.sources)
    assert any(len(d.text) >= least for d in held.documents)
    again = split(whole, share, seed, least)
    assert (names(again[0]), names(again[1])) == (names(train), names(held))


def test_the_share_is_that_of_documents_among_long_and_short_ones():
    train, held = split(corpus([100] * 60 + [1000] * 40), 0.1, min_chars=500)
    assert len(train.documents) == 90
    assert sorted(len(d.text) for d in held.documents) == [100] * 6 + [1000] * 4


def test_seeds_draw_differently_and_a_new_document_moves_no_other():
    whole = corpus([50] * 40)
    held = [names(split(whole, 0.25, seed)[1]) for seed in range(3)]
    assert held[0] != held[1] != held[2]
    grown = corpus([50] * 41)
    assert names(split(grown, 0.25, 0)[1]) - {("made", "40")} <= held[0]


def test_the_draw_is_pinned():
    """Written down once: the hash is the same for ever and on every machine."""
    assert {name for _, name in names(split(corpus([50] * 20), 0.2, seed=0)[1])} == {"18", "4", "6", "8"}


def test_a_single_document_is_cut_once_at_a_paragraph():
    text = "\n\n".join(f"Paragraph {n} says something of its own." for n in range(100))
    train, held = split(collect("book", [Document("book.txt", text, "book")]), 0.1)
    (begin,), (end,) = train.documents, held.documents
    assert begin.text + end.text == text and end.text.startswith("Paragraph ") and 0.08 < len(end.text) / len(text) < 0.16
    longer = split(collect("book", [Document("book.txt", text, "book")]), 0.1, min_chars=len(text) // 2)[1]
    assert len(longer.documents[0].text) >= len(text) // 2


def test_a_corpus_too_small_says_what_is_there_and_what_is_needed():
    with pytest.raises(UsageError, match="2 documents with 150 characters, and can hold out one of at most 90; 91 are needed"):
        split(corpus([60, 90]), min_chars=91)
    with pytest.raises(UsageError, match="one of at most 45; 46 are needed"):
        split(corpus([90]), min_chars=46)


@pytest.mark.parametrize(
    ("change", "words"), [({"held_out": 0.0}, "got 0.0"), ({"held_out": 1}, "got 1"), ({"seed": -1}, "got -1")]
)
def test_arguments_that_cannot_work_are_refused(change, words):
    with pytest.raises(UsageError, match=words):
        split(corpus([60, 90]), **change)


@pytest.fixture
def folder(tmp_path):
    for n in range(12):
        (tmp_path / f"{n:02d}.txt").write_text(f"Document {n}. " + "The dog ran to the naïve cat. " * (10 if n % 2 else 100))
    return tmp_path


@pytest.mark.parametrize("tokenizer", ["bytes", "bpe:280"])
def test_prepare_holds_out_whole_documents_long_enough_to_read_far_in(folder, tokenizer):
    ready = prepare(str(folder), tokenizer, held_out=0.2, seed=1, min_held_tokens=600)
    assert max(len(d.ids) for d in ready.held) >= 600 and len(ready.train) + len(ready.held) == 12
    for document in (*ready.train, *ready.held):
        assert ready.tokenizer.decode(document.ids) == (folder / document.name).read_text()
    assert ready.provenance["train"]["tokens"] == sum(len(d.ids) for d in ready.train)
    assert ready.provenance["vocab"] == ready.tokenizer.vocab


def test_a_trained_tokenizer_never_sees_the_held_out_part(tmp_path):
    """The held-out half repeats a word that training text lacks: no token may hold it."""
    (tmp_path / "book.txt").write_text("The dog ran to the cat and back again. " * 60 + "zyxw " * 400)
    ready = prepare(str(tmp_path / "book.txt"), "bpe:262", held_out=0.4)
    assert len(ready.tokenizer.encode("zyxw")) == 4


def test_prepare_refuses_a_length_that_no_document_has(folder):
    with pytest.raises(UsageError, match="5000 are needed"):
        prepare(str(folder), min_held_tokens=5000)
    with pytest.raises(UsageError, match=r"longest held-out document has \d+ tokens of 'bpe:280', and 2500 are needed"):
        prepare(str(folder), "bpe:280", min_held_tokens=2500)
