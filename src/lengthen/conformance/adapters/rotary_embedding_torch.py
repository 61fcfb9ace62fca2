"""rotary-embedding-torch (PyPI; read at 0.9.1): rotary encodings in contiguous tokens from an offset, xPos from position 0."""

from typing import Any

from torch import Tensor

from .ports import RotaryPort


class Turned(RotaryPort):
    """`rotate_queries_or_keys` with an offset; decoding with `rotate_queries_with_cached_keys`, which takes raw keys."""

    def channels(self, module: Any) -> int:
        return 2 * module.freqs.shape[-1]

    def turn(self, module: Any, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        turned = (module.rotate_queries_or_keys(_placed(module, x), offset=start) for x in (q, k))
        return tuple(_placed(module, x) for x in turned)

    def cached(self, module: Any, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        turned = module.rotate_queries_with_cached_keys(_placed(module, q), _placed(module, k))
        return tuple(_placed(module, x) for x in turned)


class XPos(Turned):
    """`use_xpos=True`: queries and keys are turned together, and only from position 0."""

    anywhere = False

    def turn(self, module: Any, q: Tensor, k: Tensor, start: int) -> tuple[Tensor, Tensor]:
        return tuple(_placed(module, x) for x in module.rotate_queries_and_keys(_placed(module, q), _placed(module, k)))


def _placed(module: Any, x: Tensor) -> Tensor:
    """Heads and tokens exchanged where the module wants tokens first."""
    return x.transpose(1, 2) if module.seq_before_head_dim else x


ADAPTERS = {
    "rotary_embedding_torch.rotary_embedding_torch.RotaryEmbedding": lambda module: XPos() if module.use_xpos else Turned()
}
