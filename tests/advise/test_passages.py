"""Passages of the target length, with needles where they are said to be."""

import re

import numpy as np
import pytest
from wordy import TARGET, TRAINED, tokenizer, write_texts

from lengthen.advise.forward import DECODED
from lengthen.advise.needles import MOST, NAMES, VALUES, needles
from lengthen.advise.passages import encode, passages
from lengthen.core import UsageError
from lengthen.data import load_corpus


@pytest.fixture
def corpus(tmp_path):
    return load_corpus(str(write_texts(tmp_path / "t")))


def test_passage_and_what_comes_behind_make_the_target(corpus):
    for passage in passages(corpus, tokenizer(), TRAINED, TARGET, 3):
        assert len(passage.ids) + max(passage.needles.room, DECODED) == TARGET
        assert len(passage.scored) == len(passage.ids) - 1


def test_without_its_needles_a_passage_is_the_text(corpus):
    texts = {d.name: encode(tokenizer(), d) for d in corpus.documents}
    for passage in passages(corpus, tokenizer(), TRAINED, TARGET, 3):
        kept = passage.ids[np.concatenate([[True], passage.scored])]
        assert np.array_equal(kept, texts[passage.name][: len(kept)])


def test_half_the_needles_are_beyond_the_old_window_and_each_is_where_it_is_said(corpus):
    for passage in passages(corpus, tokenizer(), TRAINED, TARGET, 3):
        asked = passage.needles
        assert len(asked) >= 2 and sum(d > TRAINED for d in passage.distances) == len(asked) / 2
        assert sum(d + asked.room <= TRAINED for d in passage.distances) == len(asked) / 2
        for sentence, distance in zip(asked.sentences, passage.distances, strict=True):
            end = len(passage.ids) - distance
            assert tuple(passage.ids[end - len(sentence) : end]) == sentence
        words = tokenizer().decode(passage.ids).split()
        assert all(words.count(v) == 1 for v in tokenizer().convert_ids_to_tokens(list(asked.choices)))


def test_needles_stand_between_sentences(corpus):
    passage = passages(corpus, tokenizer(), TRAINED, 1024 // 4, 1)[0]
    stop = tokenizer().convert_tokens_to_ids(".")
    starts = [len(passage.ids) - d - len(s) for d, s in zip(passage.distances, passage.needles.sentences, strict=True)]
    # A sentence has nine tokens, and an end is looked for within L / 16 = 4 of them.
    assert all(passage.ids[s - 1] == stop for s in starts if stop in passage.ids[s - 1 : s + 3])


def test_a_question_is_the_sentence_up_to_the_value():
    made = needles(tokenizer(), 4, seed=3)
    tokens = tokenizer().convert_ids_to_tokens
    for sentence, question, choice in zip(made.sentences, made.questions, made.choices, strict=True):
        assert sentence[:-2] == question and sentence[-2] == choice
        assert tokens(choice) in VALUES and tokens(question[-2]) in NAMES


def test_values_can_be_told_apart_by_one_letter():
    """For tokenizers of letters: the token that decides is the first letter."""
    assert len({v[0] for v in VALUES}) == len(VALUES) == MOST and len(set(NAMES)) == MOST


def test_passages_do_not_overlap(tmp_path):
    corpus = load_corpus(str(write_texts(tmp_path / "t", documents=2, words=600)))
    found = passages(corpus, tokenizer(), TRAINED, TARGET, 10)
    names = [p.name for p in found]
    assert set(names[:2]) == {"text0.txt", "text1.txt"} and names[2:] == [f"{n}, from token {TARGET}" for n in names[:2]]
    assert len({p.digest for p in found}) == 4


def test_too_short_a_text_is_refused_with_both_numbers(corpus):
    longest = max(len(encode(tokenizer(), d)) for d in corpus.documents)
    with pytest.raises(
        UsageError, match=re.escape(f"its longest has {longest} tokens, and the target is {longest + 1} tokens")
    ):
        passages(corpus, tokenizer(), TRAINED, longest + 1, 1)
