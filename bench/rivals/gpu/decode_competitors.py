"""The competitors of decode: each function takes one copy of a case's data and returns (call, output tensor), or
raises where it cannot. A call is queued on the current stream."""

import functools
import math

from competitors import NotForThisCase
from decode_inputs import HEAD, PAGE

SCALE = 1 / math.sqrt(HEAD)


class DecodeCompetitors:
    RIVALS = ("fa2", "xqa", "cudnn")

    def __init__(self, torch, lib):
        self.torch, self.lib = torch, lib
        self.versions = {"longhaul": lib.version, "torch": torch.__version__}

    # ---- ours
    def longhaul(self, data, lambda_=None, counters=None):
        out = self.torch.empty_like(data.q)
        prepared = self.lib.prepare(
            "decode",
            data.q,
            data.k.transpose(1, 2),
            data.v.transpose(1, 2),
            out,
            cu_seqlens_q=data.starts,
            page_table=data.table,
            kv_lengths=data.lengths,
            lambda_=lambda_,
            counters=counters,
        )

        def call():
            prepared.args.stream = self.torch.cuda.current_stream().cuda_stream
            prepared()

        return call, out

    def sparsity(self, data, lambda_):
        """Skipped over visible scores, by the kernel's counters."""
        counters = self.torch.zeros(data.shape.kv_heads, 4, dtype=self.torch.int64, device=data.device)
        self.longhaul(data, lambda_, counters)[0]()
        visible, skipped = counters.sum(0).tolist()[:2]
        return skipped / visible

    # ---- rivals
    def fa2(self, data):
        """FlashInfer's decode wrapper on tensor cores."""
        import flashinfer

        self.versions["fa2"] = f"FlashInfer {flashinfer.__version__}"
        torch, s = self.torch, data.shape
        numbers = functools.partial(torch.full, (s.batch,), PAGE, dtype=torch.int32)
        workspace = torch.zeros(256 << 20, dtype=torch.uint8, device=data.device)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND", use_tensor_cores=True, backend="fa2")
        wrapper.plan(
            torch.arange(s.batch + 1, dtype=torch.int32) * (s.keys // PAGE),
            data.table.view(-1).cpu(),
            numbers(),
            s.heads,
            s.kv_heads,
            HEAD,
            PAGE,
            q_data_type=torch.bfloat16,
            kv_data_type=torch.bfloat16,
        )
        out = torch.empty_like(data.q)
        return functools.partial(wrapper.run, data.q, (data.k, data.v), out=out), out

    @functools.cached_property
    def _xqa_workspace(self):
        """Its own: XQA keeps counters there that must start at zero."""
        return self.torch.zeros(256 << 20, dtype=self.torch.uint8, device="cuda")

    def xqa(self, data):
        """TensorRT-LLM's XQA as FlashInfer ships it."""
        s = data.shape
        if s.heads != 16 * s.kv_heads:
            raise NotForThisCase("XQA is built for 16 query heads per KV head")
        import flashinfer
        from flashinfer.decode import trtllm_batch_decode_with_kv_cache

        self.versions["xqa"] = f"FlashInfer {flashinfer.__version__}"
        out = self.torch.empty_like(data.q)
        call = functools.partial(
            trtllm_batch_decode_with_kv_cache,
            data.q,
            (data.k, data.v),
            self._xqa_workspace,
            data.table,
            data.lengths,
            s.keys,
            bmm1_scale=SCALE,
            bmm2_scale=1.0,
            out=out,
            kv_layout="HND",
            backend="xqa",
        )
        return call, out

    @functools.cached_property
    def _cudnn_handle(self):
        import cudnn

        return cudnn.create_handle()

    def cudnn(self, data):
        """cuDNN's attention with page tables, by its own Python frontend, on contiguous copies of keys and values."""
        import cudnn

        self.versions["cudnn"] = f"cuDNN {cudnn.backend_version()}"
        torch, s, handle, types = self.torch, data.shape, self._cudnn_handle, cudnn.data_type
        graph = cudnn.pygraph(
            io_data_type=types.BFLOAT16,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            handle=handle,
        )
        pack = {}

        def tensor(name, value, kind=types.BFLOAT16):
            stride = list(value.stride())
            if value.shape[0] == 1:
                stride[0] = value.numel()
            node = graph.tensor(name=name, dim=list(value.shape), stride=stride, data_type=kind)
            pack[node] = value
            return node

        lengths = functools.partial(torch.full, (s.batch, 1, 1, 1), dtype=torch.int32, device=data.device)
        table, q = data.table.view(s.batch, 1, -1, 1), data.q[:, :, None]
        node, _ = graph.sdpa(
            name="sdpa",
            generate_stats=False,
            attn_scale=SCALE,
            q=tensor("q", q),
            k=tensor("k", data.k.contiguous()),
            v=tensor("v", data.v.contiguous()),
            use_padding_mask=True,
            seq_len_q=tensor("sq", lengths(1), types.INT32),
            seq_len_kv=tensor("skv", lengths(s.keys), types.INT32),
            paged_attention_k_table=tensor("pk", table, types.INT32),
            paged_attention_v_table=tensor("pv", table, types.INT32),
            paged_attention_max_seq_len_kv=s.keys,
        )
        out = torch.empty_like(q)
        node.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride())).set_data_type(types.BFLOAT16)
        pack[node] = out
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.check_support()
        graph.build_plans()
        scratch = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=data.device)

        def call():
            cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
            graph.execute(pack, scratch, handle=handle)

        return call, out[:, :, 0]
