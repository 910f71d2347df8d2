"""The rival: every form of attention that PyTorch's CPU offers for a shape, and the fastest of them."""

import warnings

import inputs
import measure
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa


def rival_variants(data):
    """name -> function of one input set; all that PyTorch offers for this shape, layout conversions not timed."""
    causal = data.shape.phase == "prefill"
    variants = {}
    for layout in ("own layout", "our layout"):
        q, k, v = (data.bhtd(name, layout == "own layout") for name in ("query", "key", "value"))
        variants["grouped heads, " + layout] = lambda q=q, k=k, v=v: sdpa(q, k, v, is_causal=causal, enable_gqa=True)
        if not causal:  # the query heads of a KV head as rows of one head: K and V are read once
            rows = q.reshape(data.shape.batch, inputs.HEADS_KV, inputs.GROUP, inputs.DIM)
            variants["packed heads, " + layout] = lambda q=rows, k=k, v=v: sdpa(q, k, v)
    if causal:
        q, k, v = (data.bhtd(name, True) for name in ("query", "key", "value"))
        k, v = (x.repeat_interleave(inputs.GROUP, 1) for x in (k, v))
        variants["repeated heads"] = lambda q=q, k=k, v=v: sdpa(q, k, v, is_causal=True)
    return variants


def fused(function):
    def call():
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return function()

    return call


def unfused(function):
    def call():
        with sdpa_kernel([SDPBackend.MATH]):
            return function()

    return call


PLAIN = "grouped heads, own layout, fused"  # the call as one writes it


def choose_rival(data):
    """(name, seconds of every variant): the fastest of two timed calls each. Without the fused kernel: decode only."""
    candidates = {}
    for name, function in rival_variants(data).items():
        candidates[name + ", fused"] = fused(function)
        if data.shape.phase == "decode":
            candidates[name + ", math"] = unfused(function)
    usable = {}
    for name, function in candidates.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                function()
        except RuntimeError as error:
            print(f"  rival {name:<36} cannot run: {str(error).splitlines()[0]}")
            continue
        usable[name] = lambda r, function=function: function()
    times = {name: min(seconds) for name, seconds in measure.interleave(usable, 2).items()}
    for name, seconds in times.items():
        print(f"  rival {name:<36} {1e3 * seconds:8.1f} ms", flush=True)
    return min(times, key=times.get), times


class Rival:
    def __init__(self, sets, name):
        base, _, backend = name.rpartition(", ")
        wrap = fused if backend == "fused" else unfused
        self.calls = [wrap(rival_variants(data)[base]) for data in sets]

    def __call__(self, r):
        return self.calls[r % len(self.calls)]()
