"""A tiny random Llama, a tokenizer of whole words, and texts of them."""

from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lengthen.advise.needles import NAMES, VALUES

TRAINED = 64
TARGET = 256
WORDS = [f"w{n}" for n in range(40)]
TOKENS = ["<unk>", "<s>", *WORDS, ".", "The", "password", "of", "is", *NAMES, *VALUES]


def tokenizer() -> PreTrainedTokenizerFast:
    """A token per word and full stop; nothing in front."""
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(TOKENS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>")


def llama(**sizes) -> LlamaForCausalLM:
    """Random weights, always the same; attention is peaked enough that positions matter."""
    torch.manual_seed(0)
    config = {
        "vocab_size": len(TOKENS),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": TRAINED,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    return LlamaForCausalLM(LlamaConfig(**{**config, **sizes})).eval()


def write_texts(folder: Path, documents: int = 3, words: int = 400) -> Path:
    """Files of random words with a full stop after every eighth."""
    draw = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    for n in range(documents):
        chosen = draw.choice(WORDS, words + n)
        text = " ".join(word + (" ." if m % 8 == 7 else "") for m, word in enumerate(chosen))
        (folder / f"text{n}.txt").write_text(text)
    return folder
