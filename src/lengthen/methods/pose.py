"""PoSE: positional skip-wise training (Zhu et al. 2023, arXiv:2309.10400)."""

import torch
from torch import Tensor

from lengthen.core import LengthError, PositionMap, Scheme, UsageError, method
from lengthen.core.errors import require_count


class PositionalSkips(PositionMap):
    """While training, a window of T tokens is cut into N chunks that stand apart in [0, limit) (section 3.2).

    pos(t) = t + u_i for t in chunk i, u_0 = 0, u_i ~ U{u_(i-1) .. limit - T}: inside a chunk, tokens are neighbours;
    between chunks, every distance up to limit - 1 occurs. The N - 1 borders are distinct, drawn alike from 1..T-1 (the
    released code draws the first of two from the first half). Rows draw apart; documents packed into a row share its
    borders and skips. Attention stays causal over the whole window.

    The text of the window is one piece (v_i = 0 in the paper's notation; its other choices take chunk i from further on
    in the document). In evaluation tokens stand at 0, 1, 2, ... Raises LengthError for a window longer than `limit`.
    """

    def __init__(self, limit: int, chunks: int = 2):
        super().__init__()
        require_count("pose", "limit", limit, "positions")
        require_count("pose", "chunks", chunks, "chunks")
        self.limit, self.chunks = limit, chunks

    @property
    def reads_tokens(self) -> bool:
        """Only to learn the number of rows to draw for."""
        return self.training

    def forward(self, idx: Tensor, tokens: Tensor | None = None) -> Tensor:
        if not self.training:
            return idx
        idx = idx if tokens is None else idx.expand(len(tokens), -1)
        window = int(idx.max()) + 1
        if window > self.limit:
            raise LengthError(
                f"pose spreads a window over {self.limit} positions, got {window} tokens. "
                f"Raise 'limit' to the length to reach, or train on windows of at most {self.limit} tokens."
            )
        borders, skips = self._draw(len(idx), window, idx.device)
        moved = idx + skips.gather(1, torch.searchsorted(borders, idx.clamp_min(0).contiguous(), right=True))
        return torch.where(idx < 0, idx, moved)

    def _draw(self, rows: int, window: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Sorted borders [B, N-1] and skips [B, N]; windows shorter than N tokens have one chunk per token."""
        cuts = min(self.chunks, max(window, 1)) - 1
        borders = torch.rand(rows, max(window - 1, 1), device=device).topk(cuts, dim=1).indices.sort(dim=1).values + 1
        skips = [torch.zeros(rows, dtype=torch.long, device=device)]
        for _ in range(cuts):
            room = self.limit - window - skips[-1] + 1
            skips.append(skips[-1] + (torch.rand(rows, dtype=torch.float64, device=device) * room).long())
        return borders, torch.stack(skips, dim=1)


@method("pose", family="randomised", paper="2309.10400", modifies=True, variants=({"chunks": 3},))
def pose(train_length: int, *, limit: int | None = None, chunks: int = 2) -> Scheme:
    """Training windows are cut into chunks that skip positions, so that short windows show the model every distance.

    limit: positions to reach, the target length; None: four training lengths.
    chunks: pieces of a window; the paper has 2.
    """
    limit = limit if limit is not None else 4 * train_length
    if limit < train_length:
        raise UsageError(f"pose reaches {limit} positions, less than the {train_length} tokens of a window. Raise 'limit'.")
    return Scheme(positions=PositionalSkips(limit, chunks))
