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
from dataclasses import dataclass

import numpy as np

ABI_VERSION = 1
DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "float8_e4m3": 3, "int32": 4, "int64": 5, "uint8": 6}
STORAGE = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "float8_e4m3": np.uint8}
DEVICES = {"cpu": 0, "cuda": 1}
PHASES = {"prefill": 0, "decode": 1}
RULES = {"max": 0, "sum": 1}
ORDERS = {"newest_first": 0, "ascending": 1}
TORCH_NAMES = {"float8_e4m3fn": "float8_e4m3"}
ATTENTION_OPERANDS = ("query", "key", "value", "output")


class LonghaulError(RuntimeError):
    """A call failed; `status` is the name of its lh_status."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


@dataclass
class Raw:
    """Memory by its address; strides count elements, and None means row-major."""

    pointer: int
    dtype: str
    shape: tuple
    stride: tuple | None = None
    device: str = "cpu"


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 4),
        ("stride", ctypes.c_int64 * 4),
    ]


class _AttentionArgs(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *((name, _Tensor) for name in (*ATTENTION_OPERANDS, "lse", "cu_seqlens_q", "cu_seqlens_kv")),
        ("page_table", _Tensor),
        ("kv_lengths", _Tensor),
        ("softmax_scale", ctypes.c_float),
        ("causal", ctypes.c_int32),
        ("window_left", ctypes.c_int64),
        ("soft_cap", ctypes.c_float),
        ("rule", ctypes.c_int32),
        *((name, _Tensor) for name in ("sinks", "query_scale", "key_scale", "value_scale")),
        ("lambda_kind", ctypes.c_int32),
        ("lambda_value", ctypes.c_float),
        ("lambda_values", _Tensor),
        *((name, _Tensor) for name in ("counters", "skip_mask", "probe_lambdas", "probe_skipped")),
        ("batch_invariant", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
        ("stream", ctypes.c_void_p),
    ]


class Geometry(ctypes.Structure):
    _fields_ = [("tile_keys", ctypes.c_int32), ("block_keys", ctypes.c_int32), ("group_rows", ctypes.c_int32)]


class MaskShape(ctypes.Structure):
    _fields_ = [("voting_heads", ctypes.c_int64), ("groups", ctypes.c_int64), ("blocks", ctypes.c_int64)]


class _ReferenceArgs(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("phase", ctypes.c_int32),
        ("order", ctypes.c_int32),
        ("geometry", Geometry),
        ("one_part", ctypes.c_int32),
        *(
            (name + suffix, kind)
            for name in ("output", "lse", "dropped_mass", "counters", "skip_mask")
            for suffix, kind in (("", ctypes.c_void_p), ("_count", ctypes.c_size_t))
        ),
        ("mask_shape", MaskShape),
    ]


def _dtype_name(dtype, operand: bool) -> str:
    name = str(dtype).removeprefix("torch.")
    name = TORCH_NAMES.get(name, name)
    if operand:
        name = {"uint16": "bfloat16", "uint8": "float8_e4m3"}.get(name, name)
    if name not in DTYPES:
        raise TypeError(f"dtype {dtype} has no counterpart: allowed are {', '.join(DTYPES)}")
    return name


def _as_raw(tensor, operand: bool) -> Raw:
    if isinstance(tensor, Raw):
        return tensor
    if hasattr(tensor, "data_ptr"):
        dtype = _dtype_name(tensor.dtype, operand)
        return Raw(tensor.data_ptr(), dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.device.type)
    if isinstance(tensor, np.ndarray):
        size = tensor.itemsize
        if any(step % size for step in tensor.strides):
            raise ValueError(f"strides of {tensor.strides} bytes are not multiples of the element's {size} bytes")
        stride = tuple(step // size for step in tensor.strides)
        return Raw(tensor.ctypes.data, _dtype_name(tensor.dtype, operand), tensor.shape, stride)
    raise TypeError(f"a {type(tensor).__name__} is no tensor: allowed are numpy arrays, torch tensors and Raw")


def _c_tensor(tensor, name: str) -> _Tensor:
    raw = _as_raw(tensor, name in ATTENTION_OPERANDS)
    rank = len(raw.shape)
    if rank > 4:
        raise ValueError(f"{name} has {rank} dimensions: at most 4 are allowed")
    stride = raw.stride
    if stride is None:
        stride = tuple(int(np.prod(raw.shape[i + 1 :], dtype=np.int64)) for i in range(rank))
    pad = (0,) * (4 - rank)
    return _Tensor(raw.pointer, DTYPES[raw.dtype], DEVICES[raw.device], rank, 0, (*raw.shape, *pad), (*stride, *pad))


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

    def __init__(self, lib: Longhaul, phase: str, args: _AttentionArgs, keep: list):
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

    def _args(self, q, k, v, out, *, lambda_=None, rule="max", keep: list, **options) -> _AttentionArgs:
        args = _AttentionArgs()
        self.check(self.c.lh_attention_args_init(ctypes.byref(args), ctypes.sizeof(args)))
        tensors = {"query": q, "key": k, "value": v, "output": out}
        fields = dict(_AttentionArgs._fields_)
        for name, value in options.items():
            if name not in fields or name in ("struct_size", "lambda_kind", "lambda_value", "lambda_values"):
                raise TypeError(f"unknown option '{name}'")
            if value is not None and fields[name] is _Tensor:
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
                setattr(args, name, _c_tensor(tensor, name))
        keep.extend(tensors.values())
        return args

    @staticmethod
    def _one_request(name: str, tensor, query):
        lengths = [0, _as_raw(tensor, True).shape[0]]
        if _as_raw(query, True).device == "cpu":
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
            if _as_raw(q, True).device == "cpu":
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
        total_q, heads_q = _as_raw(q, True).shape[:2]
        results = {
            "output": np.empty((total_q, heads_q, _as_raw(v, True).shape[-1])),
            "lse": np.empty((heads_q, total_q)),
            "dropped_mass": np.empty((heads_q, total_q)),
        }
        reference = _ReferenceArgs()
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
        source = source or _dtype_name(array.dtype, operand=True)
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
