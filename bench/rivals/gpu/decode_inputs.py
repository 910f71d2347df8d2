"""Shapes and data of the decode cases: bfloat16, head size 128, one query a request, pages of 64 in random order."""

import dataclasses
import math

HEAD, PAGE, BLOCK = 128, 64, 16
ROTATED_BYTES, MOST_COPIES = 400e6, 6
QUERY, KEY = 8.0, 17.0  # channel 0: heavy blocks lie 8 * 17 / sqrt(128) = 12 nats above the others


@dataclasses.dataclass(frozen=True)
class DecodeShape:
    batch: int
    keys: int
    heads: int = 64
    kv_heads: int = 4

    @property
    def kv_bytes(self):
        """Keys and values, each once."""
        return 2 * self.batch * self.keys * self.kv_heads * HEAD * 2

    @property
    def copies(self):
        """Inputs that launches go round, so that none finds its cache in L2."""
        return max(1, min(MOST_COPIES, math.ceil(ROTATED_BYTES / self.kv_bytes)))

    @property
    def launches(self):
        """Launches in one graph: 24 at batch 1; 1 means no graph."""
        return 24 if self.batch == 1 else 1


def ideal_speedup(sparsity):
    """All keys are read, and the values of what is kept."""
    return 1 / (1 - sparsity / 2)


def percent(share):
    """The suffix of an id: 0.5 -> s50, 0 -> s00."""
    return f"s{100 * share:02.0f}"


def shape_of(name):
    """b1.32k.h16 -> batch 1, 32,768 keys, 16 query and 2 KV heads."""
    batch, length, *heads = name.split(".")
    keys = {"131k": 131072}.get(length) or int(length[:-1]) * 1024
    return DecodeShape(int(batch[1:]), keys, *((16, 2) if heads else (64, 4)))


class DecodeData:
    """q [batch, heads, 128]; cache [pages, 2, kv_heads, 64, 128], its keys and values as views; table [batch, pages
    of a request]; lengths [batch]. `cold`: that share of the blocks of 16 keys matters to nobody."""

    def __init__(self, torch, shape, cold=None, seed=1, device="cuda"):
        self.torch, self.shape, self.device = torch, shape, device
        self.generator = torch.Generator(device=device).manual_seed(seed)
        pages = shape.batch * shape.keys // PAGE
        self.q = self._normal(shape.batch, shape.heads, HEAD)
        self.cache = self._normal(pages, 2, shape.kv_heads, PAGE, HEAD)
        order = torch.randperm(pages, device=device, generator=self.generator)
        self.table = order.to(torch.int32).view(shape.batch, -1)
        self.lengths = torch.full((shape.batch,), shape.keys, dtype=torch.int32, device=device)
        self.starts = torch.arange(shape.batch + 1, dtype=torch.int32, device=device)
        self.k, self.v = self.cache[:, 0], self.cache[:, 1]
        if cold is not None:
            self._cool(cold)

    def _normal(self, *shape):
        empty = self.torch.empty(shape, dtype=self.torch.bfloat16, device=self.device)
        return empty.normal_(generator=self.generator)

    def _cool(self, share):
        """Other blocks for each request and KV head. The newest is heavy, so that every tile has a reference."""
        torch, s = self.torch, self.shape
        pages = s.keys // PAGE
        size = (s.batch, pages, s.kv_heads, PAGE // BLOCK)
        heavy = torch.rand(size, device=self.device, generator=self.generator) >= share
        heavy[:, -1, :, -1] = True
        marks = (KEY * heavy).to(torch.bfloat16).repeat_interleave(BLOCK, -1)
        self.q[..., 0] = QUERY
        self.k[..., 0][self.table.flatten().long()] = marks.view(-1, s.kv_heads, PAGE)

    def pairs(self):
        """(request, head) of the outputs that are checked."""
        return sorted(
            {(0, 0), (self.shape.batch // 2, self.shape.heads // 2), (self.shape.batch - 1, self.shape.heads - 1)}
        )

    def reference(self):
        """Outputs of pairs() in float32: [pairs, 128]."""
        results = []
        for request, head in self.pairs():
            pages, kv = self.table[request].long(), head // (self.shape.heads // self.shape.kv_heads)
            k, v = (t[pages, kv].reshape(-1, HEAD).float() for t in (self.k, self.v))
            weights = self.torch.softmax(k @ self.q[request, head].float() / math.sqrt(HEAD), 0)
            results.append(weights @ v)
        return self.torch.stack(results)

    def error(self, output):
        """Relative root mean square of an output's difference from the reference; NaN where it has one."""
        got = self.torch.stack([output[pair] for pair in self.pairs()]).float()
        want = self.reference()
        return ((got - want).norm() / want.norm()).item()
