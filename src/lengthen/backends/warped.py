"""A warped term (FIRE) on tiles, by ordinary tensor operations: no network per pair, and no plane of pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from lengthen.core import Layout, WarpedTerm
from lengthen.core.patterns import Span

from .additive import TILE, Room, tiles
from .ribbon import add_diagonals, ribbon
from .spans import Block, rows_of


@dataclass(frozen=True)
class Warped:
    """b_h = slopes[h, s] x + offsets[h, s], s the number of knots below x = psi(distance) factor(query); nats.

    With the knots t, which are where the lines of two neighbours meet, that is a matrix product per tile:
    offsets[h, 0] + slopes[h, 0] x + sum over s of (slopes[h, s] - slopes[h, s - 1]) relu(x - t_s).
    """

    psi: Tensor
    """[1, Q + K - 1], distances falling."""
    factor: Tensor
    """[B|1, Q], the last query first."""
    slopes: Tensor
    """[H, S + 1]."""
    offsets: Tensor
    """[H, S + 1]."""
    knots: Tensor
    """[S + 1], ascending from 0; without a gradient."""

    @staticmethod
    def of(term: WarpedTerm, distance: Tensor, layout: Layout, dtype: torch.dtype) -> "Warped":
        """Knots that no pair reaches are left out."""
        made = term.warp(distance, layout.q.pos)
        kept = made.knots[made.knots < (made.psi.amax() * made.factor.amax()).detach()]
        lines = (t[:, : len(kept) + 1] for t in (made.slopes, made.offsets))
        every = made.psi[None], made.factor.flip(1), *lines, torch.nn.functional.pad(kept, (1, 0))
        return Warped(*(t.to(dtype).contiguous() for t in every))

    @property
    def learned(self) -> tuple[Tensor, ...]:
        return self.psi, self.factor, self.slopes, self.offsets

    def block(self, block: Block, span: Span, room: Room | None = None) -> Tensor:
        """[B|1, H, rows, keys], with relu(x - t) = max(x, t) - t."""
        rises, factor = self._rises().detach(), self._factor(block)
        base = self.offsets[:, :1] - (rises * self.knots).sum(1, keepdim=True)
        shape = len(factor), len(rises), block.height, span[1] - span[0]
        out = (room if room is not None else Room()).take(shape, rises.dtype)
        for batch, rows in product(range(shape[0]), rows_of(block.height, max(1, TILE // shape[3]))):
            # Trap: a product of overlapping views has strides of its own, which would be copied at every step.
            x = out.new_empty(rows.stop - rows.start, shape[3])
            torch.mul(self._psi(block, rows, span), factor[batch, rows], out=x)
            corners = torch.maximum(x, self.knots[:, None, None]).flatten(1)
            torch.addmm(base, rises, corners, out=out[batch, :, rows].flatten(1))
        return out

    def collect(self, block: Block, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        """By sums over the pairs beyond each knot. The knots' own shifts cancel, because the lines meet there."""
        for a, b in tiles(block, span):
            self._collect(block, (a, b), grad[..., a - span[0] : b - span[0]], into)

    def _rises(self) -> Tensor:
        """[H, S + 1]: how much steeper it becomes at each knot."""
        return self.slopes.diff(dim=1, prepend=torch.zeros_like(self.slopes[:, :1]))

    def _factor(self, block: Block) -> Tensor:
        """[B|1, rows, 1]."""
        return self.factor[block.batch if len(self.factor) > 1 else slice(None), block.rows, None]

    def _psi(self, block: Block, rows: slice, span: Span) -> Tensor:
        """[rows, keys], of some rows of a block."""
        return ribbon(self.psi, slice(block.rows.start + rows.start, block.rows.start + rows.stop), span)[0, 0]

    def _collect(self, block: Block, span: Span, grad: Tensor, into: Sequence[Tensor]) -> None:
        psi, factor = self._psi(block, slice(0, block.height), span).contiguous(), self._factor(block)
        x = psi * factor
        grad = grad.sum(0, keepdim=True) if len(x) == 1 else grad
        past = (x[:, None] > self.knots[:, None, None]).to(x.dtype)
        past[:, 0] = 1.0
        flat = grad.flatten(2)
        into[3].add_(_differences((flat @ past.flatten(2).mT).sum(0)))
        into[2].add_(_differences((flat @ (past * x[:, None]).flatten(2).mT).sum(0)))
        of_x = ((self._rises().mT @ flat).view(past.shape) * past).sum(1)
        add_diagonals(into[0], block.rows, span, (of_x * factor).sum(0, keepdim=True))
        rows = into[1][block.batch if len(self.factor) > 1 else slice(None), block.rows]
        rows += (of_x * psi).sum(-1)


def _differences(beyond: Tensor) -> Tensor:
    """Sums over pairs beyond each knot -> sums over pairs of each segment."""
    return beyond - torch.nn.functional.pad(beyond[:, 1:], (0, 1))
