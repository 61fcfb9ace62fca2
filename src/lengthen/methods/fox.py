"""FoX: the forgetting attention (Lin et al. 2025, arXiv:2503.02130), also known as data-dependent ALiBi and CABLE."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthen.core import Needs, Scheme, ScoreTerm, Tile, UsageError, method
from lengthen.core.errors import require_count


class ForgetGate(ScoreTerm):
    """b_h(i, j) = sum_{l=j+1}^{i} ln f_l = c_i - c_j for keys j <= i, with f_t = sigmoid(w_h . x_t + b_h), nats.

    The cumulative sum c is the stream, cached beside the keys. Only its differences count: padding and documents before a
    token's own change nothing. It is float64 in every model and under autocast: at ln f = -0.7 a float32 sum of a million
    tokens would be known to 0.03 nats, a bfloat16 one of a thousand to 2. Added unscaled, after the scaling of q . k.
    CABLE (arXiv:2503.08067) has the same gates, with the sign of w and b turned.
    """

    needs = Needs.CONTENT
    relative = True

    def __init__(self, heads: int, width: int, bias: float = 0.0):
        super().__init__()
        require_count("ForgetGate", "heads", heads, "heads")
        require_count("ForgetGate", "width", width, "channels")
        self.gate = nn.Linear(width, heads)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.constant_(self.gate.bias, bias)

    def stream(self, x: Tensor, carry: Tensor | None) -> Tensor:
        """[B, T, C] -> c, float64 [B, T, H]."""
        real = torch.promote_types(x.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            gate = F.linear(x.to(real), self.gate.weight.to(real), self.gate.bias.to(real))
            total = F.logsigmoid(gate).double().cumsum(1)
        return total if carry is None else carry + total

    def forward(self, tile: Tile) -> Tensor:
        if tile.q_stream is None or tile.k_stream is None:
            raise UsageError(
                "The forget gate reads its stream, and got none. Pass `stream(x, None)` as q_streams and k_streams."
            )
        c_i, c_j = tile.q_stream.transpose(1, 2), tile.k_stream.transpose(1, 2)
        return (c_i[..., :, None] - c_j[..., None, :]).to(tile.dtype)


@method("fox", family="contextual", paper="2503.02130", variants=({"bias": 4.0},))
def fox(heads: int, width: int, *, bias: float = 0.0) -> Scheme:
    """Each token decides per head how much of what came before it is forgotten.

    bias: initial value of the gate's bias; 0, the paper's, forgets half at each token, larger values less.
    """
    return Scheme(terms=[ForgetGate(heads, width, bias)])
