"""How tensors lie in memory, where kernels care."""

from torch import Tensor


def side_by_side(x: Tensor) -> Tensor:
    """The tensor itself, or a copy whose channels adjoin. Trap: kernels read channels as if they did, whatever the stride."""
    return x if x.stride(-1) == 1 else x.contiguous()
