"""The tokenizer check, on a byte-level tokenizer that is right and on three that are not."""

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from lengthen.conformance.model.suite import check_model
from lengthen.core import methods
from lengthen.models import Decoder, DecoderConfig

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())


def tokenizer(prefix_space: bool = False, bos: str | None = None) -> PreTrainedTokenizerFast:
    """One token per byte, and a first token <s> where asked for: 'once' or 'twice'."""
    vocab = {"<s>": 0, **{b: n + 1 for n, b in enumerate(BYTES)}}
    made = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space, use_regex=False)
    made.decoder = decoders.ByteLevel()
    if bos is not None:
        front = "<s> $A" if bos == "once" else "<s> <s> $A"
        made.post_processor = processors.TemplateProcessing(single=front, special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>")


def verdict(given, vocab: int = 300):
    sizes = DecoderConfig(vocab=vocab, layers=1, heads=2, width=16)
    model = Decoder(sizes, methods()["rope"].build(sizes.shape(train_length=16)))
    return check_model(model, tokenizer=given, only=["tokens_at_joins"])["tokens_at_joins"]


def test_a_tokenizer_that_is_right_passes():
    assert verdict(tokenizer()).outcome == verdict(tokenizer(bos="once")).outcome == "pass"


def test_the_tokenizer_of_another_model_is_found():
    assert "outside the vocabulary of the model, 90" in verdict(tokenizer(), vocab=90).reason


def test_a_space_before_every_piece_is_found():
    assert "two pieces encoded apart do not decode to their text" in verdict(tokenizer(prefix_space=True)).reason


def test_a_second_bos_is_found():
    assert "BOS is added 2 times" in verdict(tokenizer(bos="twice")).reason


def test_without_a_tokenizer_it_does_not_apply():
    assert verdict(None).outcome == "not applicable"
