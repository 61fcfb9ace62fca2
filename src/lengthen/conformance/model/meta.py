"""A check of construction without memory: weights arrive later, and nothing else is missing."""

from .check import NotApplicable
from .hugging_face import EncoderDecoder, HuggingFace
from .register import model_check
from .subject import Subject, difference
from .verdict import Measured


@model_check(
    "meta_device",
    "loading",
    meaning="Loaded as large models are (built without memory, then filled from a checkpoint) it computes something else.",
    cause="A table or a bias is made from parameters at construction, when these have no values yet.",
)
def meta_device(subject: Subject) -> Measured:
    """Built with its parameters on the meta device and filled from a state dict, it gives the same logits, bit by bit."""
    if type(subject) not in (HuggingFace, EncoderDecoder):
        raise NotApplicable("how to build it anew from its settings is not known")
    import copy

    from accelerate import init_empty_weights

    source, config = subject.fresh(), copy.deepcopy(subject.model.config)
    with init_empty_weights(include_buffers=False):
        hollow = type(source.model)(config)
    hollow.load_state_dict(source.model.state_dict(), assign=True)
    hollow.tie_weights()
    left = [name for name, p in hollow.named_parameters() if p.is_meta]
    if left:
        return Measured(float(len(left)), 0.0, f"without values after loading: {', '.join(left[:3])}")
    ids = subject.ids(subject.within(24))
    return Measured(difference(subject.carrying(hollow).logits(ids), source.logits(ids)), 0.0)
