"""Text to ids and back, with the bytes behind each token, so that losses compare across tokenizers as bits per byte."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np

from lengthen.core.errors import Refusal, UsageError, require_count, unknown

from .documents import Corpus

RECORD = "lengthen_tokenizer.json"
"""What `save` writes beside the tokenizer's own files, so that `load_saved` knows its kind."""


class Tokenizer(ABC):
    """Text <-> ids, without special tokens added."""

    name: str
    """As given on the command line."""
    vocab: int
    """Number of ids."""

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """int64 [T]."""

    @abstractmethod
    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD."""

    @property
    @abstractmethod
    def bytes_per_token(self) -> np.ndarray:
        """float64 [vocab]: UTF-8 bytes of text behind each id."""

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Writes what `load_saved` reads."""

    def token_bytes(self, ids: Iterable[int]) -> np.ndarray:
        """float64 [T]: UTF-8 bytes behind each of the ids; over a whole text they sum to its size in bytes."""
        return self.bytes_per_token[np.asarray(ids, dtype=np.int64)]


class ByteTokenizer(Tokenizer):
    """The 256 bytes of UTF-8."""

    name, vocab = "bytes", 256

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return bytes(np.asarray(ids, dtype=np.int64).tolist()).decode(errors="replace")

    @property
    def bytes_per_token(self) -> np.ndarray:
        return np.ones(self.vocab)

    def save(self, folder: str | Path) -> None:
        _record(folder, "bytes", self.name)


class Bpe(Tokenizer):
    """Byte-level BPE (Sennrich et al. 2016, arXiv:1508.07909) by the `tokenizers` library: lossless on any text."""

    def __init__(self, inner, name: str):
        self.inner, self.name = inner, name
        self.vocab = inner.get_vocab_size()

    @staticmethod
    def train(texts: Iterable[str], vocab: int) -> "Bpe":
        """Merges learned from `texts`, none of which may be held out. Refuses a vocabulary that they cannot fill."""
        from tokenizers import Tokenizer as Inner
        from tokenizers import decoders, models, pre_tokenizers, trainers

        require_count("bpe", "vocab", vocab, "tokens", least=257)
        inner = Inner(models.BPE())
        inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = decoders.ByteLevel()
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, special_tokens=[], show_progress=False)
        inner.train_from_iterator(texts, trainer)
        if inner.get_vocab_size() < vocab:
            raise UsageError(
                f"The training text is too small for a vocabulary of {vocab} tokens: it yields {inner.get_vocab_size()}. "
                f"Ask for bpe:{inner.get_vocab_size()} or fewer, or give more text."
            )
        return Bpe(inner, f"bpe:{vocab}")

    def encode(self, text: str) -> np.ndarray:
        (whole,) = self.inner.encode_batch_fast([text], add_special_tokens=False)
        return np.array(whole.ids, dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        return self.inner.decode(np.asarray(ids, dtype=np.int64).tolist(), skip_special_tokens=False)

    @cached_property
    def bytes_per_token(self) -> np.ndarray:
        return np.array([len(self.inner.id_to_token(n)) for n in range(self.vocab)], dtype=np.float64)

    def save(self, folder: str | Path) -> None:
        _write(Path(folder) / "tokenizer.json", self.inner.to_str())
        _record(folder, "bpe", self.name)


class Hugging(Tokenizer):
    """A tokenizer of the Hugging Face hub or of a local folder; code that comes with it is not run."""

    def __init__(self, place: str, name: str | None = None):
        from transformers import AutoTokenizer

        self.name = name if name is not None else f"hf:{place}"
        try:
            self.inner = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(
                f"The tokenizer {self.name!r} could not be loaded: {str(error).strip().split(chr(10))[0].rstrip('.')}. "
                "Without a network, give the folder of a saved tokenizer as hf:FOLDER, or use 'bytes' or 'bpe:4096'."
            ) from error
        self.vocab = len(self.inner)

    def encode(self, text: str) -> np.ndarray:
        ids = self.inner(text, add_special_tokens=False, verbose=False)["input_ids"]
        return np.array(ids, dtype=np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        ids = np.asarray(ids, dtype=np.int64).tolist()
        return self.inner.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    @cached_property
    def bytes_per_token(self) -> np.ndarray:
        """Byte-level tokenizers write each byte as one character; SentencePiece writes a space as U+2581 and a lone byte
        as <0xNN>, and may count one space before the text. Refuses the rest (WordPiece, say), which lose text."""
        backend = getattr(self.inner, "backend_tokenizer", None)
        pipeline = backend.to_str() if backend is not None else "{}"
        decoder = json.dumps(json.loads(pipeline).get("decoder"))
        added = self.inner.get_added_vocab()
        if "ByteLevel" in decoder:
            size = len
        elif "Metaspace" in decoder or "ByteFallback" in decoder:
            size = _piece_bytes
        else:
            raise Refusal(
                f"The tokenizer {self.name!r} does not keep the text whole, so its tokens have no bytes; report nats per token."
            )
        tokens = self.inner.convert_ids_to_tokens(list(range(self.vocab)))
        return np.array([len(t.encode()) if t in added else size(t) for t in tokens], dtype=np.float64)

    def save(self, folder: str | Path) -> None:
        self.inner.save_pretrained(str(folder))
        _record(folder, "hf", self.name)


def load_tokenizer(spec: str, corpus: Corpus | None = None) -> Tokenizer:
    """'bytes', 'bpe:SIZE' (trained on `corpus`, the training part), or 'hf:NAME_OR_FOLDER'."""
    kind, _, rest = spec.partition(":")
    if spec == "bytes":
        return ByteTokenizer()
    if kind == "hf" and rest:
        return Hugging(rest)
    if kind == "bpe":
        if not rest.isdecimal():
            raise UsageError(f"The tokenizer {spec!r} needs its number of tokens, as in bpe:4096.")
        if corpus is None:
            raise UsageError(f"The tokenizer {spec!r} is trained, and no corpus is given to train it on.")
        return Bpe.train((d.text for d in corpus.documents), int(rest))
    raise unknown("tokenizer", spec, ("bytes", "bpe:4096", "hf:NAME_OR_FOLDER"))


def load_saved(folder: str | Path) -> Tokenizer:
    """What `save` wrote into `folder`."""
    path = Path(folder) / RECORD
    if not path.is_file():
        raise UsageError(f"There is no tokenizer in {folder}: {RECORD} is missing.")
    record = json.loads(path.read_bytes())
    if record["kind"] == "bytes":
        return ByteTokenizer()
    if record["kind"] == "hf":
        return Hugging(str(folder), record["name"])
    from tokenizers import Tokenizer as Inner

    return Bpe(Inner.from_file(str(Path(folder) / "tokenizer.json")), record["name"])


def _piece_bytes(token: str) -> int:
    return 1 if token.startswith("<0x") and len(token) == 6 else len(token.replace("\u2581", " ").encode())


def _record(folder: str | Path, kind: str, name: str) -> None:
    _write(Path(folder) / RECORD, json.dumps({"kind": kind, "name": name}, indent=1) + "\n")


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(path.suffix + ".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
