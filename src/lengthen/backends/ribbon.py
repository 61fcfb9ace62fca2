"""A function of the distance over a block of (query, key) pairs, as a view of one table per head."""

from torch import Tensor

from lengthen.core.patterns import Span


def ribbon(table: Tensor, rows: slice, span: Span) -> Tensor:
    """[H, N] -> [1, H, rows, keys], where row r and column c read entry r + c: a view with both strides 1, no memory."""
    heads, stride = table.shape[0], table.stride(0)
    shape = (1, heads, rows.stop - rows.start, span[1] - span[0])
    return table.as_strided(shape, (heads * stride, stride, 1, 1), table.storage_offset() + rows.start + span[0])


def add_diagonals(table: Tensor, rows: slice, span: Span, grad: Tensor) -> None:
    """Adds [H, rows, keys] to the entries of [H, N] that `ribbon` reads: sums along anti-diagonals.

    Rows padded by as many zeros as there are rows, read with one element less per row: anti-diagonals become columns.
    """
    heads, n, width = grad.shape
    padded = grad.new_zeros(heads, n, width + n)
    padded[..., :width] = grad
    skewed = padded.as_strided((heads, n, width + n - 1), (n * (width + n), width + n - 1, 1))
    first = rows.start + span[0]
    table[:, first : first + width + n - 1] += skewed.sum(1)
