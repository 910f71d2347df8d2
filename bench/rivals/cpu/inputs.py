"""Inputs of the CPU cases: plain random ones, and ones whose heavy blocks of 16 keys are known."""

import math
from dataclasses import dataclass

import torch

BLOCK = 16  # keys of a block, query rows of a group
HEADS_Q, HEADS_KV, DIM = 8, 2, 128
GROUP = HEADS_Q // HEADS_KV
DIRECTIONS = 64  # half of DIM carries the pattern, the other half noise
MARGIN = 16.0  # natural units between a heavy block and the others; lambda 1e-3 asks for 6.9
LAMBDA = 1e-3


@dataclass(frozen=True)
class Shape:
    phase: str  # prefill or decode
    batch: int
    length: int

    @property
    def queries(self):
        return self.length if self.phase == "prefill" else 1

    @property
    def flops(self):
        """Of the visible scores: 2 for Q.K and 2 for P.V an element of the head."""
        scores = self.queries * (self.queries + 1) // 2 if self.phase == "prefill" else self.length
        return 4 * self.batch * HEADS_Q * scores * DIM

    def kv_bytes(self, dtype):
        return 2 * self.batch * self.length * HEADS_KV * DIM * torch.empty(0, dtype=dtype).element_size()


@dataclass
class Inputs:
    """query [requests * queries, heads, d], key and value [requests * length, heads, d], as an engine holds them."""

    shape: Shape
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor

    def bhtd(self, name, copy):
        """The same values as PyTorch's [batch, heads, tokens, d]: a view, or in that order in memory."""
        tensor = getattr(self, name)
        view = tensor.view(self.shape.batch, -1, tensor.shape[1], DIM).transpose(1, 2)
        return view.contiguous() if copy else view


def _allocate(shape, dtype, generator):
    def normal(tokens, heads):
        return torch.randn(shape.batch * tokens, heads, DIM, generator=generator).to(dtype)

    return normal(shape.queries, HEADS_Q), normal(shape.length, HEADS_KV), normal(shape.length, HEADS_KV)


def random_inputs(shape, dtype, seed):
    return Inputs(shape, *_allocate(shape, dtype, torch.Generator().manual_seed(seed)))


def blocky_inputs(shape, dtype, sparsity, seed):
    """A share of about `sparsity` of the blocks lies MARGIN below the others, at random places.

    Each block of keys takes one of DIRECTIONS directions by KV head. Prefill: each group of 16 rows and head picks its
    own set of directions, whose blocks are heavy. Decode: one set for each KV head and request, since its heads vote
    together. The newest block is heavy, so that the running maximum is right from the first tile on.
    """
    generator = torch.Generator().manual_seed(seed)
    query, key, value = _allocate(shape, dtype, generator)
    blocks = key.shape[0] // BLOCK
    size = math.sqrt(MARGIN * math.sqrt(DIM))

    direction = torch.randint(DIRECTIONS, (blocks, HEADS_KV), generator=generator)
    pattern = torch.nn.functional.one_hot(direction, DIRECTIONS) * size
    key[:, :, :DIRECTIONS] = pattern.repeat_interleave(BLOCK, 0).to(dtype)

    if shape.phase == "prefill":
        newest = direction.repeat_interleave(GROUP, 1)
    else:
        newest = direction[shape.length // BLOCK - 1 :: shape.length // BLOCK]
    order = torch.rand(*newest.shape, DIRECTIONS, generator=generator).scatter(2, newest[:, :, None], -1.0)
    picks = order.argsort(2).argsort(2) < max(1, round((1 - sparsity) * DIRECTIONS))
    picks = picks.repeat_interleave(BLOCK, 0) if shape.phase == "prefill" else picks.repeat_interleave(GROUP, 1)
    query[:, :, :DIRECTIONS] = (picks * size).to(dtype)
    return Inputs(shape, query, key, value)
