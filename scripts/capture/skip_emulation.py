"""The skip rule emulated with torch, independently of the C++ code: sparsity and output error for many lambdas at once.

Causal prefill of one query head. All blocks are summed separately (in units of 16 keys), so that one pass serves every
order, voting group and lambda: an output is then a 0/1 matrix of kept blocks times the partial sums.
"""

import itertools
from dataclasses import dataclass

import torch

UNIT = 16  # keys of the finest block
CHUNK = 128  # query rows worked on together, the largest voting group

NEWEST_FIRST, ASCENDING = "newest_first", "ascending"


@dataclass(frozen=True)
class Case:
    """A visit order and a unit of skipping. The tile's keys join the reference maximum before its blocks are tested."""

    order: str
    group_rows: int
    block_keys: int
    tile_keys: int

    def __str__(self):
        return "{}, {} x {}".format(self.order.replace("_", " "), self.group_rows, self.block_keys)


def _coarser(maxima, factor):
    """Maxima of `factor` neighbouring units; the last one may be short."""
    rows, units = maxima.shape
    padded = torch.nn.functional.pad(maxima, (0, -units % factor), value=float("-inf"))
    return padded.reshape(rows, -1, factor).amax(2)


def votes(unit_max, case):
    """[groups, units]: a block is dropped for lambda iff its entry < ln(lambda). +inf where the tile always runs."""
    rows, units = unit_max.shape
    tile_units = case.tile_keys // UNIT
    block_units = case.block_keys // UNIT
    tile_max = _coarser(unit_max, tile_units)
    reference = tile_max.flip(1).cummax(1).values.flip(1) if case.order == NEWEST_FIRST else tile_max.cummax(1).values
    block_max = _coarser(unit_max, block_units)
    reference = reference.repeat_interleave(tile_units // block_units, 1)[:, : block_max.shape[1]]
    distance = torch.where(block_max == float("-inf"), block_max, block_max - reference)
    distance = distance.reshape(rows // case.group_rows, case.group_rows, -1).amax(1)
    distance = distance.repeat_interleave(block_units, 1)[:, :units]
    visible = (unit_max > float("-inf")).reshape(-1, case.group_rows, units).any(1)
    if case.order == NEWEST_FIRST:
        last = units - 1 - visible.flip(1).int().argmax(1)
        first_tile = last // tile_units
    else:
        first_tile = torch.zeros(len(visible), dtype=torch.long)
    own = torch.arange(units) // tile_units == first_tile[:, None]
    return distance.masked_fill(own, float("inf"))


class Chunk:
    """CHUNK query rows: maxima, softmax sums and P.V of every unit of keys, against the row's own maximum."""

    def __init__(self, query, key, value, scale, first):
        last = first + CHUNK
        units = last // UNIT
        scores = (query[first:last] @ key[:last].T) * scale
        seen = torch.arange(last) <= torch.arange(first, last)[:, None]
        scores = scores.masked_fill(~seen, float("-inf"))
        self.visible = seen.reshape(CHUNK, units, UNIT).sum(2)
        self.unit_max = scores.reshape(CHUNK, units, UNIT).amax(2)
        weights = torch.exp(scores - scores.amax(1, keepdim=True)).reshape(CHUNK, units, UNIT)
        self.mass = weights.sum(2)
        self.partial = torch.bmm(weights.transpose(0, 1), value[:last].reshape(units, UNIT, -1))  # [units, rows, dv]
        self.dense = self.partial.sum(0) / self.mass.sum(1, keepdim=True)

    def outputs(self, kept):
        """[lambdas, rows, dv] of a 0/1 tensor [lambdas, groups, units]."""
        lambdas, groups, units = kept.shape
        rows = CHUNK // groups
        results = []
        for g in range(groups):
            own = slice(g * rows, (g + 1) * rows)
            sums = (kept[:, g] @ self.partial[:, own].reshape(units, -1)).reshape(lambdas, rows, -1)
            results.append(sums / (kept[:, g] @ self.mass[own].T)[:, :, None])
        return torch.cat(results, 1)


@dataclass
class Curve:
    """For each lambda, sums over the rows: scores seen and skipped, squared error, squared dense output."""

    visible: float
    skipped: torch.Tensor
    error: torch.Tensor
    energy: float

    def __add__(self, other):
        return Curve(
            self.visible + other.visible,
            self.skipped + other.skipped,
            self.error + other.error,
            self.energy + other.energy,
        )

    @property
    def sparsity(self):
        return self.skipped / self.visible

    @property
    def relative_error(self):
        return (self.error / self.energy).sqrt()

    def sparsity_at(self, error):
        """Sparsity at a relative output error, interpolated in ln(error); None outside the measured range."""
        errors, sparsities = self.relative_error.tolist(), self.sparsity.tolist()
        for (e0, s0), (e1, s1) in itertools.pairwise(zip(errors, sparsities, strict=True)):
            if 0 < e0 <= error <= e1:
                if e1 == e0:
                    return s1
                t = torch.log(torch.tensor(error / e0)) / torch.log(torch.tensor(e1 / e0))
                return s0 + float(t) * (s1 - s0)
        return None


def curves(query, key, value, scale, cases, lambdas, every=1):
    """case -> Curve for one query head [tokens, d], over every `every`-th chunk of rows. Lambdas ascend."""
    if query.shape[0] % CHUNK:
        raise ValueError(f"query has {query.shape[0]} rows, the emulation takes a multiple of {CHUNK}")
    query, key, value = query.float(), key.float(), value.float()
    logs = torch.tensor(lambdas, dtype=torch.float32).log()
    zero = torch.zeros(len(lambdas), dtype=torch.float64)
    totals = {case: Curve(0.0, zero, zero, 0.0) for case in cases}
    for first in range(CHUNK * (every - 1), query.shape[0], CHUNK * every):
        chunk = Chunk(query, key, value, scale, first)
        energy = float(chunk.dense.double().square().sum())
        for case in cases:
            distance = votes(chunk.unit_max, case)
            visible = chunk.visible.reshape(len(distance), case.group_rows, -1).sum(1).double()
            dropped = distance < logs[:, None, None]
            error = (chunk.outputs((~dropped).float()) - chunk.dense).double().square().sum((1, 2))
            skipped = (visible * dropped).sum((1, 2))
            # A sum in another order is not an error of skipping.
            error[skipped == 0] = 0
            totals[case] += Curve(float(visible.sum()), skipped, error, energy)
    return totals
