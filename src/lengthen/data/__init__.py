"""Corpora, tokenizers, splits and batches."""

from .batches import IGNORED, Batch, Batches, TokenDocument
from .corpus import load_corpus
from .documents import Corpus, Document
from .prepare import Prepared, prepare
from .split import split
from .tokenizer import Bpe, ByteTokenizer, Tokenizer, load_saved, load_tokenizer

__all__ = [
    "IGNORED",
    "Batch",
    "Batches",
    "Bpe",
    "ByteTokenizer",
    "Corpus",
    "Document",
    "Prepared",
    "TokenDocument",
    "Tokenizer",
    "load_corpus",
    "load_saved",
    "load_tokenizer",
    "prepare",
    "split",
]
