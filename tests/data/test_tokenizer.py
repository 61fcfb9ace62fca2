"""Tokenizers keep text whole, and know how many bytes stand behind each token."""

import json

import numpy as np
import pytest

from lengthen.core.errors import Refusal, UsageError
from lengthen.data import Bpe, ByteTokenizer, Corpus, Document, load_saved, load_tokenizer

SAMPLES = (
    "plain words, then numbers 2024 and   runs of spaces\n\n\ttabs",
    "def f(x):\r\n    return {'é': x ** 2}  # naïve café\n",
    "Ελληνικά, русский, 中文字, हिन्दी, עברית, 🙂👩‍👩‍👧 e\u0301 \u00e9 \ufeff\u2028",
    "<|endoftext|> <s> [MASK] \x00\x7f",
    "",
)


@pytest.fixture(scope="module")
def corpus():
    lines = [
        f"The {word} of the house went to the {word} again, number {n}.\n"
        for n in range(60)
        for word in ("dog", "cat", "naïve")
    ]
    return Corpus("made", (Document("a", "".join(lines), "made"), Document("b", "def f(x):\n    return x\n" * 40, "made")), {})


@pytest.fixture(scope="module")
def bpe(corpus):
    return load_tokenizer("bpe:320", corpus)


@pytest.fixture(scope="module")
def saved_bpe(bpe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    bpe.save(folder)
    return folder


@pytest.fixture(scope="module")
def hugging(saved_bpe):
    return load_tokenizer(f"hf:{saved_bpe}")


@pytest.mark.parametrize("kind", ["bytes", "bpe", "hugging"])
@pytest.mark.parametrize("text", SAMPLES)
def test_round_trip_is_exact_and_token_bytes_sum_to_the_size_in_utf8(kind, text, request):
    tokenizer = ByteTokenizer() if kind == "bytes" else request.getfixturevalue(kind)
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int64 and ids.ndim == 1
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes(ids).sum() == len(text.encode())
    assert not len(ids) or (ids.min() >= 0 and ids.max() < tokenizer.vocab)


def test_bytes_are_the_bytes():
    assert ByteTokenizer().encode("aé").tolist() == [97, 0xC3, 0xA9]
    assert ByteTokenizer().decode([0xC3]) == "\ufffd"


def test_bpe_learns_the_words_of_its_corpus(bpe):
    assert bpe.vocab == 320 and bpe.name == "bpe:320"
    assert len(bpe.encode(" the")) == 1 and bpe.token_bytes(bpe.encode(" the")).tolist() == [4]


def test_the_first_merge_is_the_most_frequent_pair():
    """In 'abab abab ...' every pair inside a word counts: 'ab' twice per word, 'ba' once."""
    bpe = Bpe.train(["abab " * 50], 257)
    assert json.loads(bpe.inner.to_str())["model"]["merges"] == [["a", "b"]]


def test_training_twice_gives_the_same_merges(corpus, bpe):
    again = load_tokenizer("bpe:320", corpus)
    assert json.loads(again.inner.to_str())["model"] == json.loads(bpe.inner.to_str())["model"]


def test_hugging_face_reads_the_saved_bpe_as_it_is(bpe, hugging):
    for text in SAMPLES:
        assert hugging.encode(text).tolist() == bpe.encode(text).tolist()


def test_saved_tokenizers_come_back(bpe, saved_bpe, hugging, tmp_path):
    ByteTokenizer().save(tmp_path / "bytes")
    hugging.save(tmp_path / "hf")
    assert isinstance(load_saved(tmp_path / "bytes"), ByteTokenizer)
    for folder, name in ((saved_bpe, "bpe:320"), (tmp_path / "hf", hugging.name)):
        back = load_saved(folder)
        assert back.name == name and back.encode(SAMPLES[1]).tolist() == bpe.encode(SAMPLES[1]).tolist()


def test_sentencepiece_pieces_count_spaces_and_lone_bytes_as_one(tmp_path):
    """A piece vocabulary with byte fallback, made by hand; the bytes of 'a é' are 1 + 1 + 2."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    pieces = {"<unk>": 0, "\u2581": 1, "a": 2, "\u2581a": 3, **{f"<0x{b:02X}>": 4 + b for b in range(256)}}
    inner = Tokenizer(models.BPE(pieces, [("\u2581", "a")], unk_token="<unk>", byte_fallback=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    inner.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="never")])
    inner.save(str(tmp_path / "tokenizer.json"))
    made = load_tokenizer(f"hf:{tmp_path}")
    ids = made.encode("a é a")
    assert made.token_bytes(ids).tolist() == [1, 1, 1, 1, 2]


def test_added_tokens_count_their_own_utf8_bytes(bpe, tmp_path):
    from tokenizers import Tokenizer

    inner = Tokenizer.from_str(bpe.inner.to_str())
    inner.add_special_tokens(["«fin»"])
    inner.save(str(tmp_path / "tokenizer.json"))
    made = load_tokenizer(f"hf:{tmp_path}")
    ids = made.encode("é«fin»")
    assert made.vocab == 321 and made.token_bytes(ids)[-1] == len("«fin»".encode()) == 7 and made.token_bytes(ids).sum() == 9


def test_a_tokenizer_that_loses_text_has_no_bytes(tmp_path):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    inner = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(Refusal, match="nats per token"):
        load_tokenizer(f"hf:{tmp_path}").token_bytes([1])


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("byte", "Did you mean 'bytes'"),
        ("bpe", "needs its number of tokens"),
        ("bpe:100", "at least 257, got 100"),
        ("bpe:4096", r"yields \d+. Ask for bpe:\d+ or fewer"),
        ("hf:", "There is no tokenizer"),
    ],
)
def test_what_cannot_work_is_refused(spec, words, corpus):
    with pytest.raises(UsageError, match=words):
        load_tokenizer(spec, corpus)


def test_bpe_without_a_corpus_and_an_empty_folder_are_refused(tmp_path):
    with pytest.raises(UsageError, match="no corpus is given"):
        load_tokenizer("bpe:300")
    with pytest.raises(UsageError, match="missing"):
        load_saved(tmp_path)
    with pytest.raises(UsageError, match="could not be loaded"):
        load_tokenizer(f"hf:{tmp_path}")
