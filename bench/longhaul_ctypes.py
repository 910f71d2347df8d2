"""Longhaul's C interface from Python with nothing but numpy, for benchmarks and tests.

    lib = load()                                     # build-release/liblonghaul.so, or load("/path/liblonghaul.so")
    lib.prefill(q, k, v, out)                        # one request, causal, dense
    lib.decode(q, k, v, out, cu_seqlens_q=..., cu_seqlens_kv=..., lambda_=1e-3, counters=counters)
    call = lib.prepare("decode", q, k, v, out, page_table=..., kv_lengths=...)
    call()                                           # only the C call: what a benchmark times

Tensors are numpy arrays, torch tensors, or Raw. Numpy has no bfloat16 and no float8: as query, key, value and output,
uint16 stands for bfloat16 and uint8 for float8_e4m3.

On a CUDA device all tensors are torch's or Raw(..., device="cuda"), lengths and lambdas too, and the call is queued on
option `stream` (an integer; by default torch's current one). What is left out (lengths, workspace) torch allocates.
"""

from __future__ import annotations

import ctypes
import pathlib

import numpy as np
from longhaul_structs import (
    DTYPES,
    ORDERS,
    PHASES,
    RULES,
    STORAGE,
    AttentionArgs,
    Geometry,
    MaskShape,
    Raw,
    ReferenceArgs,
    Tensor,
    as_raw,
    c_tensor,
    dtype_name,
)

ABI_VERSION = 1
__all__ = ["ABI_VERSION", "Geometry", "Longhaul", "LonghaulError", "MaskShape", "Raw", "load"]


class LonghaulError(RuntimeError):
    """A call failed; `status` is the name of its lh_status."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


def _aligned_bytes(size: int) -> np.ndarray:
    buffer = np.empty(size + 64, np.uint8)
    begin = -buffer.ctypes.data % 64
    return buffer[begin : begin + size]


def _torch_for(what: str, query):
    """The torch module, to allocate `what` beside a query of its own."""
    if not hasattr(query, "data_ptr"):
        raise TypeError(f"{what} must be given where query is a Raw on a CUDA device")
    import torch

    return torch


class Call:
    """A prepared call, to be run any number of times. It keeps its tensors alive."""

    def __init__(self, lib: Longhaul, phase: str, args: AttentionArgs, keep: list):
        self._lib, self.phase, self.args, self._keep = lib, phase, args, keep
        self._function = getattr(lib.c, f"lh_{phase}")
        self._pointer = ctypes.byref(args)

    def __call__(self) -> None:
        self._lib.check(self._function(self._pointer))


class Longhaul:
    def __init__(self, c: ctypes.CDLL):
        self.c = c
        for name in ("lh_version", "lh_last_error", "lh_status_name"):
            getattr(c, name).restype = ctypes.c_char_p
        c.lh_lambda_from_scale_factor.argtypes = [ctypes.c_double, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        c.lh_convert.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t]
        for name in ("lh_attention_args_init", "lh_reference_args_init"):
            getattr(c, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        if c.lh_abi_version() != ABI_VERSION:
            raise LonghaulError("unsupported", f"the library's ABI is {c.lh_abi_version()}, this file's {ABI_VERSION}")

    def check(self, status: int) -> None:
        if status:
            raise LonghaulError(self.c.lh_status_name(status).decode(), self.c.lh_last_error().decode())

    @property
    def version(self) -> str:
        return self.c.lh_version().decode()

    @property
    def isa(self) -> str:
        name = ctypes.c_char_p()
        self.check(self.c.lh_isa(ctypes.byref(name)))
        return name.value.decode()

    @property
    def default_threads(self) -> int:
        threads = ctypes.c_int32()
        self.check(self.c.lh_default_threads(ctypes.byref(threads)))
        return threads.value

    def _args(self, q, k, v, out, *, lambda_=None, rule="max", keep: list, **options) -> AttentionArgs:
        args = AttentionArgs()
        self.check(self.c.lh_attention_args_init(ctypes.byref(args), ctypes.sizeof(args)))
        tensors = {"query": q, "key": k, "value": v, "output": out}
        fields = dict(AttentionArgs._fields_)
        for name, value in options.items():
            if name not in fields or name in ("struct_size", "lambda_kind", "lambda_value", "lambda_values"):
                raise TypeError(f"unknown option '{name}'")
            if value is not None and fields[name] is Tensor:
                tensors[name] = value
            elif value is not None:
                setattr(args, name, value)
        if "cu_seqlens_q" not in tensors:  # one request
            tensors["cu_seqlens_q"] = self._one_request("cu_seqlens_q", q, q)
        if "page_table" not in tensors and "cu_seqlens_kv" not in tensors:
            tensors["cu_seqlens_kv"] = self._one_request("cu_seqlens_kv", k, q)
        if not args.stream and hasattr(q, "data_ptr") and q.device.type == "cuda":
            args.stream = _torch_for("stream", q).cuda.current_stream(q.device).cuda_stream
        if isinstance(lambda_, (int, float)):
            args.lambda_kind, args.lambda_value = 1, lambda_
        elif lambda_ is not None:
            args.lambda_kind, tensors["lambda_values"] = 2, lambda_
        if rule not in RULES:
            raise ValueError(f"rule is '{rule}': allowed are {', '.join(RULES)}")
        args.rule = RULES[rule]
        for name, tensor in tensors.items():
            if tensor is not None:
                setattr(args, name, c_tensor(tensor, name))
        keep.extend(tensors.values())
        return args

    @staticmethod
    def _one_request(name: str, tensor, query):
        lengths = [0, as_raw(tensor, True).shape[0]]
        if as_raw(query, True).device == "cpu":
            return np.array(lengths, np.int32)
        torch = _torch_for(name, query)
        return torch.tensor(lengths, dtype=torch.int32, device=query.device)

    def prepare(self, phase: str, q, k, v, out, **options) -> Call:
        """Checks the sizes, allocates the workspace unless options name one, and returns the call."""
        keep: list = []
        args = self._args(q, k, v, out, keep=keep, **options)
        if not args.workspace:
            size = ctypes.c_size_t()
            self.check(self.c.lh_attention_workspace_bytes(ctypes.byref(args), PHASES[phase], ctypes.byref(size)))
            if as_raw(q, True).device == "cpu":
                workspace = _aligned_bytes(size.value)
                args.workspace = workspace.ctypes.data
            else:  # torch aligns to 512 bytes
                torch = _torch_for("workspace", q)
                workspace = torch.empty(size.value, dtype=torch.uint8, device=q.device)
                args.workspace = workspace.data_ptr()
            keep.append(workspace)
            args.workspace_bytes = size.value
        return Call(self, phase, args, keep)

    def prefill(self, q, k, v, out, **options) -> None:
        self.prepare("prefill", q, k, v, out, **options)()

    def decode(self, q, k, v, out, **options) -> None:
        self.prepare("decode", q, k, v, out, **options)()

    def _query(self, function: str, result, phase: str, q, k, v, out, options):
        keep: list = []
        args = self._args(q, k, v, out, keep=keep, **options)
        self.check(getattr(self.c, function)(ctypes.byref(args), PHASES[phase], ctypes.byref(result)))
        return result

    def workspace_bytes(self, phase: str, q, k, v, out, **options) -> int:
        return self._query("lh_attention_workspace_bytes", ctypes.c_size_t(), phase, q, k, v, out, options).value

    def geometry(self, phase: str, q, k, v, out, **options) -> Geometry:
        return self._query("lh_attention_geometry", Geometry(), phase, q, k, v, out, options)

    def skip_mask_shape(self, phase: str, q, k, v, out, **options) -> tuple[int, int, int]:
        shape = self._query("lh_skip_mask_shape", MaskShape(), phase, q, k, v, out, options)
        return shape.voting_heads, shape.groups, shape.blocks

    def reference(self, phase: str, q, k, v, *, order="newest_first", geometry=(0, 0, 0), one_part=False, **options):
        """The oracle's output [total_q, heads_q, dv], lse [heads_q, total_q] and dropped_mass, in double precision."""
        keep: list = []
        args = self._args(q, k, v, None, keep=keep, **options)
        total_q, heads_q = as_raw(q, True).shape[:2]
        results = {
            "output": np.empty((total_q, heads_q, as_raw(v, True).shape[-1])),
            "lse": np.empty((heads_q, total_q)),
            "dropped_mass": np.empty((heads_q, total_q)),
        }
        reference = ReferenceArgs()
        self.check(self.c.lh_reference_args_init(ctypes.byref(reference), ctypes.sizeof(reference)))
        reference.phase, reference.order = PHASES[phase], ORDERS[order]
        reference.geometry, reference.one_part = Geometry(*geometry), one_part
        for name, array in results.items():
            setattr(reference, name, array.ctypes.data)
            setattr(reference, f"{name}_count", array.size)
        self.check(self.c.lh_reference_attention(ctypes.byref(args), ctypes.byref(reference)))
        return results

    def convert(self, array: np.ndarray, target: str, source: str | None = None) -> np.ndarray:
        """A copy in another floating-point dtype (bfloat16 as uint16, float8_e4m3 as uint8)."""
        array = np.ascontiguousarray(array)
        source = source or dtype_name(array.dtype, operand=True)
        result = np.empty(array.shape, STORAGE[target])
        self.check(self.c.lh_convert(array.ctypes.data, DTYPES[source], result.ctypes.data, DTYPES[target], array.size))
        return result

    def lambda_from_scale_factor(self, factor: float, context_length: int) -> tuple[float, bool]:
        value, capped = ctypes.c_float(), ctypes.c_int32()
        pointers = ctypes.byref(value), ctypes.byref(capped)
        self.check(self.c.lh_lambda_from_scale_factor(factor, context_length, *pointers))
        return value.value, bool(capped.value)


def load(path: str | pathlib.Path | None = None) -> Longhaul:
    """The library at `path`, or build-release/liblonghaul.so of this checkout."""
    if path is None:
        path = pathlib.Path(__file__).resolve().parents[1] / "build-release" / "liblonghaul.so"
    return Longhaul(ctypes.CDLL(str(path)))
