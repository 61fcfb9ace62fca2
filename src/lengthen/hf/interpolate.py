"""Checkpoints that do not turn: their biases, tables or buckets, stretched after the checkpoint's own were reproduced."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lengthen.core import Refusal, Scheme, Shape, UsageError, parse

from .biases import Biases
from .buckets import Buckets
from .lengths import Lengths
from .probe import EXACT, answers, gap
from .stamp import Stamp
from .swap import evaluating
from .tables import Tables
from .target import Tokens, parts, target

KINDS = {"alibi_interpolation": Biases, "learned_interpolation": Tables, "t5_interpolation": Buckets}
"""By method, what it changes in a model."""
MARK = "lengthen_interpolated"
"""The attribute of a model that is extended in one of these ways."""
Kind = type[Biases] | type[Tables] | type[Buckets]


def kind_of(request: Any) -> Kind | None:
    """What a request changes beside rotations; None where it changes these."""
    names = {method.name for method, _ in parts(request)} & set(KINDS)
    if not names:
        return None
    if not isinstance(request, str) or len(parse(request)) > 1:
        raise UsageError(f"{' and '.join(sorted(names))} stands alone: extend(model, {sorted(names)[0] + ':factor=2'!r}).")
    return KINDS[names.pop()]


class Interpolated:
    """One of these at work in a model, its caches marked, until `remove`."""

    def __init__(self, model: PreTrainedModel, kind: Kind, scheme: Scheme, tokens: int):
        self.changed = kind(model, scheme)
        self.model, self.ours = model, True
        self.changed.configure(tokens)
        model.__dict__[MARK] = True
        stamp, body = Stamp(), model.base_model
        self._hooks = [body.register_forward_pre_hook(stamp.before, with_kwargs=True), body.register_forward_hook(stamp.after)]

    @property
    def before(self) -> Mapping[str, Any]:
        """Entries of the configuration that were changed, as they were."""
        return self.changed.before

    def remove(self) -> None:
        """Undoes everything."""
        for hook in self._hooks:
            hook.remove()
        self.model.__dict__.pop(MARK)
        self.changed.remove()


def interpolate(
    model: PreTrainedModel, request: str, kind: Kind, tokens: Tokens, original: int | None
) -> tuple[Interpolated, Scheme, Lengths, float]:
    """Installs it -> the record, the scheme, the lengths, and how far the checkpoint's own logits were reproduced.

    Raises Refusal where the model has none of it, or another kind; UsageError for lengths that cannot be.
    """
    _require_kind(model, request, kind)
    if isinstance(tokens, Sequence):
        raise UsageError(
            "Rows of their own lengths can differ in how they are turned, and nothing turns here. Give one length, tokens=N."
        )
    trained = original if original is not None else kind.trained_length(model.config)
    if trained is None:
        raise UsageError(
            f"The configuration of {type(model).__name__} does not say how long a text it was trained on. Say it, as in "
            "extend(model, ..., original=2048)."
        )
    lengths = target(request, tokens, trained, trained)
    (method, options), sizes = parse(request)[0], _shape(model, trained)
    scheme = method.build(sizes, **{"factor": lengths.factor} | options).to(model.device).eval()
    _require_decoder(model)
    found = _reproduced(model, kind)
    return Interpolated(model, kind, scheme, lengths.maximum), scheme, lengths, found


def _require_kind(model: PreTrainedModel, request: str, kind: Kind) -> None:
    why = kind.refusal(model)
    if why is not None:
        raise Refusal(f"{request!r} does not suit {type(model).__name__}: {why}. The model is untouched.")


def _shape(model: PreTrainedModel, trained: int) -> Shape:
    config = model.config
    heads = config.num_attention_heads
    return Shape(heads, heads, config.hidden_size // heads, config.hidden_size, trained)


def _require_decoder(model: PreTrainedModel) -> None:
    """Refuses models in which a later token moves an earlier answer."""
    if model.config.is_encoder_decoder:
        return
    ids = torch.randint(1, model.config.vocab_size, (1, 8), generator=torch.Generator().manual_seed(0)).to(model.device)
    other = ids.clone()
    other[0, -1] = ids[0, -1] % (model.config.vocab_size - 1) + 1
    with evaluating(model):
        a, b = (model(x, use_cache=False)[0][:, :-1].double() for x in (ids, other))
    if not torch.allclose(a, b, rtol=1e-5, atol=1e-5):
        raise Refusal(f"{type(model).__name__} sees tokens behind the query: an encoder. Only decoders can be extended.")


def _reproduced(model: PreTrainedModel, kind: Kind) -> float:
    """The gap to the checkpoint's own logits under its own positions, put in our way. Raises Refusal where it is not rounding."""
    ask = _translated if model.config.is_encoder_decoder else answers
    expected = ask(model)
    changed = kind(model, kind.own(model))
    try:
        found = gap(ask(model), expected)
    finally:
        changed.remove()
    most = EXACT if model.dtype in (torch.float32, torch.float64) else 0.05
    if found > most:
        raise Refusal(
            f"{type(model).__name__}: its own positions, put in our way, give logits that are {found:.1e} of their deviation away "
            f"from the model's, and {most:.0e} is allowed in {model.dtype}. The model is untouched."
        )
    return found


def _translated(model: PreTrainedModel) -> Tensor:
    """float64 [1, T, V]: what an encoder and a decoder say of a short text."""
    ids = torch.randint(1, model.config.vocab_size, (1, 24), generator=torch.Generator().manual_seed(0)).to(model.device)
    with evaluating(model):
        return model(input_ids=ids, decoder_input_ids=ids.flip(1), use_cache=False)[0].double()
