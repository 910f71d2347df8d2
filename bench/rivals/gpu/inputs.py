"""Shapes and data of the cases: bfloat16, head size 128."""

import dataclasses
import math

HEAD = 128


@dataclasses.dataclass(frozen=True)
class Shape:
    queries: int
    keys: int
    causal: bool
    heads: int = 64
    kv_heads: int = 4

    @property
    def flops(self):
        """Multiply and add of Q K^T and P V; of a causal square half. Skipped work is counted."""
        pairs = self.queries * self.keys - (self.queries * self.queries // 2 if self.causal else 0)
        return 4 * self.heads * HEAD * pairs


class Data:
    """query [queries, heads, 128], key and value [keys, kv_heads, 128] on the device."""

    def __init__(self, torch, shape, kind="random", device="cuda", seed=1):
        self.torch, self.shape = torch, shape
        self.generator = torch.Generator(device=device).manual_seed(seed)
        self.q = self._normal(shape.queries, shape.heads, HEAD)
        self.k = self._normal(shape.keys, shape.kv_heads, HEAD)
        self.v = self._normal(shape.keys, shape.kv_heads, HEAD)
        if kind == "heavy":
            self._make_heavy()
        elif kind != "random":
            self._make_hot(float(kind))

    def _normal(self, *shape):
        return self.torch.empty(shape, dtype=self.torch.bfloat16, device=self._device()).normal_(
            generator=self.generator
        )

    def _device(self):
        return self.generator.device

    def _make_heavy(self):
        """Blocks of 16 keys with a random direction in 16 of the dimensions, and for each 64 query rows and head one
        of their own: which blocks are heavy differs by row group and head. Their product spreads by 7 nats."""
        torch, dims = self.torch, 16
        length = 7 * math.sqrt(HEAD)
        for tensor, rows in ((self.q, 64), (self.k, 16)):
            groups = -(-tensor.shape[0] // rows)
            code = torch.randn(groups, tensor.shape[1], dims, device=tensor.device, generator=self.generator)
            code *= math.sqrt(length) / dims**0.25
            tensor[..., :dims] = code.repeat_interleave(rows, 0)[: tensor.shape[0]].to(tensor.dtype)

    def _make_hot(self, share):
        """`share` of the blocks of 256 keys matter, the same share in every 20 of them; the scores of the others lie
        128 / sqrt(128) = 11.3 nats lower, for all rows alike."""
        torch, blocks = self.torch, self.shape.keys // 256
        order = torch.rand(blocks, self.shape.kv_heads, device=self.q.device, generator=self.generator)
        hot = torch.zeros_like(order)
        for first in range(0, blocks, 20):
            part = order[first : first + 20]
            hot[first : first + 20] = (part.argsort(0).argsort(0) < round(share * part.shape[0])).float()
        hot[0] = 1
        self.q[..., 0] = 8
        self.k[..., 0] = (16 * hot).repeat_interleave(256, 0).to(self.k.dtype)

    def pages(self, size=64):
        """Key and value caches [pages, size, kv_heads, 128] in random order, and the table [1, pages]."""
        torch = self.torch
        count = self.shape.keys // size
        place = torch.randperm(count, device=self.q.device, generator=self.generator)
        caches = []
        for tensor in (self.k, self.v):
            cache = torch.empty(count, size, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
            cache[place] = tensor.view(count, size, *tensor.shape[1:])
            caches.append(cache)
        return caches[0], caches[1], place.to(torch.int32).view(1, count)

    def reference(self, rows, heads):
        """Output of some query rows and heads in float32: [rows, heads, 128]."""
        torch, s = self.torch, self.shape
        columns = torch.arange(s.keys, device=self.q.device)
        results = []
        for head in heads:
            kv = head // (s.heads // s.kv_heads)
            scores = self.q[rows, head].float() @ self.k[:, kv].float().T / math.sqrt(HEAD)
            if s.causal:
                position = rows.to(self.q.device) + (s.keys - s.queries)
                scores = scores.masked_fill(columns[None] > position[:, None], -torch.inf)
            results.append(torch.softmax(scores, -1) @ self.v[:, kv].float())
        return torch.stack(results, 1)
