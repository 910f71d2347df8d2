"""The competitors: each function takes the case's data and returns (call, output()), or raises where it cannot."""

import functools
import math

SCALE = 1 / math.sqrt(128)


class NotForThisCase(Exception):
    """The competitor cannot do what the case asks for."""


class Competitors:
    def __init__(self, torch, lib):
        self.torch, self.lib = torch, lib
        self.versions = {"longhaul": lib.version, "torch": torch.__version__}

    # ---- ours
    def longhaul(self, data, lambda_=None, pages=None, counters=None):
        q, out = data.q, self.torch.empty_like(data.q)
        options = {"causal": data.shape.causal, "lambda_": lambda_, "counters": counters}
        k, v = data.k, data.v
        if pages is not None:
            k, v, table = pages
            lengths = self.torch.tensor([data.shape.keys], dtype=self.torch.int32, device=q.device)
            options |= {"page_table": table, "kv_lengths": lengths}
        call = self.lib.prepare("prefill", q, k, v, out, **options)
        return call, lambda: out

    def sparsity(self, data, lambda_):
        """Skipped over visible scores, by the kernel's counters."""
        counters = self.torch.zeros(data.shape.heads, 4, dtype=self.torch.int64, device=data.q.device)
        self.longhaul(data, lambda_, counters=counters)[0]()
        visible, skipped = counters.sum(0).tolist()[:2]
        return skipped / visible

    # ---- rivals
    def cudnn(self, data, pages=None):
        """cuDNN by PyTorch's scaled_dot_product_attention, which needs neither pages nor a shorter query."""
        if pages is not None or data.shape.queries != data.shape.keys:
            raise NotForThisCase("cuDNN is called through PyTorch, which has neither pages nor chunks")
        from torch.nn.attention import SDPBackend, sdpa_kernel

        q, k, v = (t.transpose(0, 1)[None] for t in (data.q, data.k, data.v))
        attend = self.torch.nn.functional.scaled_dot_product_attention
        results = []

        def call():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                results[:] = [attend(q, k, v, is_causal=data.shape.causal, enable_gqa=True)]

        self.versions["cudnn"] = f"cuDNN {self.torch.backends.cudnn.version()}"
        return call, lambda: results[0][0].transpose(0, 1)

    def fa3(self, data, pages=None):
        """FlashAttention 3 as FlashInfer ships it."""
        if pages is not None:
            raise NotForThisCase("FA3 is timed without pages")
        import flashinfer
        from flashinfer.prefill import single_prefill_with_kv_cache

        self.versions["fa3"] = f"FlashInfer {flashinfer.__version__}"
        results = []

        def call():
            results[:] = [single_prefill_with_kv_cache(data.q, data.k, data.v, causal=data.shape.causal, backend="fa3")]

        return call, lambda: results[0]

    def fa4(self, data, pages=None):
        if pages is not None:
            raise NotForThisCase("flash-attn-4 is timed without pages")
        import importlib.metadata

        from flash_attn.cute import flash_attn_func

        try:
            self.versions["fa4"] = "flash-attn-4 " + importlib.metadata.version("flash-attn-4")
        except importlib.metadata.PackageNotFoundError:
            self.versions["fa4"] = "flash-attn-4"
        results = []

        def call():
            with self.torch.no_grad():
                out = flash_attn_func(data.q[None], data.k[None], data.v[None], causal=data.shape.causal)
            results[:] = [out[0] if isinstance(out, tuple) else out]

        return call, lambda: results[0][0]

    def fmha_v2(self, data, pages=None, lambda_=0.0):
        """TensorRT-LLM's kernel as FlashInfer ships it: the published skip on Hopper. Its threshold is lambda times the
        number of keys."""
        import flashinfer
        from flashinfer.prefill import trtllm_fmha_v2_prefill

        self.versions["fmha_v2"] = f"FlashInfer {flashinfer.__version__}"
        s, torch = data.shape, self.torch
        if pages is None and s.queries != s.keys:
            raise NotForThisCase("fmha_v2 gives wrong results for contiguous chunks")
        if pages is None:
            tensors, layout, extra = (data.q, data.k, data.v), "SEPARATE_Q_K_V", {}
        else:
            cache = torch.stack([pages[0], pages[1]], 1).transpose(2, 3).contiguous()  # [pages, 2, heads, size, 128]
            tensors, layout, extra = (data.q, cache), "Q_PAGED_KV_HND", {"block_tables": pages[2]}
        numbers = functools.partial(torch.tensor, dtype=torch.int32, device=data.q.device)
        lengths, cum_q, cum_kv = numbers([s.keys]), numbers([0, s.queries]), numbers([0, s.keys])
        workspace = torch.zeros(256 << 20, dtype=torch.uint8, device=data.q.device)
        out = torch.empty_like(data.q)

        def call():
            trtllm_fmha_v2_prefill(
                tensors,
                layout,
                workspace,
                lengths,
                s.queries,
                s.keys,
                SCALE,
                1.0,
                1,
                cum_q,
                cum_kv,
                out=out,
                mask_mode="causal" if s.causal else "padding",
                skip_softmax_threshold_scale_factor=lambda_ * s.keys,
                **extra,
            )

        return call, lambda: out

    RIVALS = ("fa4", "fa3", "cudnn", "fmha_v2")
