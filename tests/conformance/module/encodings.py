"""Encodings that are right, and copies of them that are wrong in one respect."""

import torch
from torch import nn


class Rotary(nn.Module):
    """Pairs (i, i + D/2) turned by float64 angles of integer positions."""

    size = 16

    def frequencies(self):
        return 10_000.0 ** (-torch.arange(0, self.size, 2, dtype=torch.float64) / self.size)

    def angles(self, x, positions):
        return positions.double()[:, None] * self.frequencies()

    def rotate(self, x, positions):
        angles = self.angles(x, positions)
        (cos, sin), (a, b) = ((t.to(x.dtype) for t in (angles.cos(), angles.sin())), x.chunk(2, -1))
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class BufferRotary(Rotary):
    """Frequencies in a buffer that is not saved."""

    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", self.frequencies().float(), persistent=False)

    def angles(self, x, positions):
        return positions.double()[:, None] * self.inv_freq.double()


class AnglesOfTheInput(Rotary):
    def angles(self, x, positions):
        return (positions.to(x.dtype)[:, None] * self.frequencies().to(x.dtype)).double()


class HalfPositions(Rotary):
    def angles(self, x, positions):
        return super().angles(x, positions.half() if x.dtype == torch.float16 else positions)


class AutocastAngles(Rotary):
    def angles(self, x, positions):
        return (positions.float()[:, None] @ self.frequencies().float()[None]).double()


class Absolute(Rotary):
    """Queries and keys of odd positions are turned further."""

    def angles(self, x, positions):
        return super().angles(x, positions) + positions[:, None].double().sqrt()


class FromZero(Rotary):
    """Positions are counted from 0 whatever is asked."""

    def angles(self, x, positions):
        return super().angles(x, torch.arange(len(positions)))


class Growing(Rotary):
    """A factor of the position, as in a separately stored xPos."""

    def rotate(self, x, positions):
        return super().rotate(x, positions) * (1.001 ** positions.double())[:, None].to(x.dtype)


class Noisy(Rotary):
    def rotate(self, x, positions):
        return super().rotate(x, positions) + 1e-3 * torch.randn_like(x)


class Remembering(Rotary):
    """A table of the longest call is kept, in its precision."""

    def rotate(self, x, positions):
        kept = getattr(self, "kept", None)
        if kept is None or len(kept) <= int(positions.max()):
            every = torch.arange(int(positions.max()) + 1).to(x.dtype).double()
            self.kept = kept = every[:, None] * self.frequencies()
        self.now = kept[positions]
        return super().rotate(x, positions)

    def angles(self, x, positions):
        return self.now


class Alibi(nn.Module):
    """-slope |i - j| in float32, from whole distances."""

    slopes = (0.5, 0.25, 0.03125, 0.00390625)

    def distances(self, q_positions, k_positions):
        return (q_positions[:, None] - k_positions[None]).abs()

    def bias(self, q_positions, k_positions):
        return -torch.tensor(self.slopes)[:, None, None] * self.distances(q_positions, k_positions)


class RewardsFar(Alibi):
    def bias(self, q_positions, k_positions):
        return -super().bias(q_positions, k_positions)


class QueryWindow(Alibi):
    """Built from the window of queries: the first query counts from 0."""

    def distances(self, q_positions, k_positions):
        return super().distances(q_positions - q_positions[0], k_positions)


class OneTokenBlind(Alibi):
    def bias(self, q_positions, k_positions):
        found = super().bias(q_positions, k_positions)
        return torch.zeros_like(found) if len(q_positions) == 1 else found


class HalfAlibi(Alibi):
    """Slopes in a buffer that follows the module's type."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.tensor(self.slopes))

    def bias(self, q_positions, k_positions):
        return -self.table[:, None, None] * self.distances(q_positions, k_positions).to(self.table.dtype)


class Skewed(Alibi):
    """The distance shrinks with the query's own position."""

    def bias(self, q_positions, k_positions):
        return super().bias(q_positions, k_positions) / (1 + 0.01 * q_positions[:, None])


class Power(Alibi):
    def distances(self, q_positions, k_positions):
        return 1.001 ** super().distances(q_positions, k_positions)


class Buckets(nn.Module):
    """A trained number per head and bucket of the distance, by sizes: the last i of j tokens."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, i, j):
        distance = (torch.arange(j - i, j)[:, None] - torch.arange(j)).clamp(min=0)
        return self.table((distance + 1).float().log2().floor().long().clamp(max=7)).permute(2, 0, 1)


class TopLeftBuckets(Buckets):
    def forward(self, i, j):
        return super().forward(j, j)[:, :i]


class Sinusoidal(nn.Module):
    """Sines and cosines of float64 angles."""

    def angles(self, positions):
        return positions.double()[:, None] * 10_000.0 ** (-torch.arange(16, dtype=torch.float64) / 16)

    def forward(self, positions):
        angles = self.angles(positions)
        return torch.cat((angles.sin(), angles.cos()), -1).float()


class HalfSinusoidal(Sinusoidal):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 10_000.0 ** (-torch.arange(16.0) / 16))

    def angles(self, positions):
        return (positions.to(self.inv_freq.dtype)[:, None] * self.inv_freq).double()


class Learned(nn.Module):
    """A table of 512 positions; others raise."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(512, 12)

    def forward(self, positions):
        return self.table(positions)


class WrapsAround(Learned):
    def forward(self, positions):
        return self.table(positions % 512)


class Clamps(Learned):
    def forward(self, positions):
        return self.table(positions.clamp(max=511))


class FromZeroLearned(Learned):
    def forward(self, positions):
        return self.table(torch.arange(len(positions)))
