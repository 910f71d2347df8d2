"""The structures of Longhaul's C interface for ctypes, and tensors in them: numpy's, torch's, or by their address."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

DTYPES = {"float32": 0, "float16": 1, "bfloat16": 2, "float8_e4m3": 3, "int32": 4, "int64": 5, "uint8": 6}
STORAGE = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16, "float8_e4m3": np.uint8}
DEVICES = {"cpu": 0, "cuda": 1}
PHASES = {"prefill": 0, "decode": 1}
RULES = {"max": 0, "sum": 1}
ORDERS = {"newest_first": 0, "ascending": 1}
TORCH_NAMES = {"float8_e4m3fn": "float8_e4m3"}
ATTENTION_OPERANDS = ("query", "key", "value", "output")


@dataclass
class Raw:
    """Memory by its address; strides count elements, and None means row-major."""

    pointer: int
    dtype: str
    shape: tuple
    stride: tuple | None = None
    device: str = "cpu"


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 4),
        ("stride", ctypes.c_int64 * 4),
    ]


class AttentionArgs(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        *((name, Tensor) for name in (*ATTENTION_OPERANDS, "lse", "cu_seqlens_q", "cu_seqlens_kv")),
        ("page_table", Tensor),
        ("kv_lengths", Tensor),
        ("softmax_scale", ctypes.c_float),
        ("causal", ctypes.c_int32),
        ("window_left", ctypes.c_int64),
        ("soft_cap", ctypes.c_float),
        ("rule", ctypes.c_int32),
        *((name, Tensor) for name in ("sinks", "query_scale", "key_scale", "value_scale")),
        ("lambda_kind", ctypes.c_int32),
        ("lambda_value", ctypes.c_float),
        ("lambda_values", Tensor),
        *((name, Tensor) for name in ("counters", "skip_mask", "probe_lambdas", "probe_skipped")),
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


class ReferenceArgs(ctypes.Structure):
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


def dtype_name(dtype, operand: bool) -> str:
    name = str(dtype).removeprefix("torch.")
    name = TORCH_NAMES.get(name, name)
    if operand:
        name = {"uint16": "bfloat16", "uint8": "float8_e4m3"}.get(name, name)
    if name not in DTYPES:
        raise TypeError(f"dtype {dtype} has no counterpart: allowed are {', '.join(DTYPES)}")
    return name


def as_raw(tensor, operand: bool) -> Raw:
    if isinstance(tensor, Raw):
        return tensor
    if hasattr(tensor, "data_ptr"):
        dtype = dtype_name(tensor.dtype, operand)
        return Raw(tensor.data_ptr(), dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.device.type)
    if isinstance(tensor, np.ndarray):
        size = tensor.itemsize
        if any(step % size for step in tensor.strides):
            raise ValueError(f"strides of {tensor.strides} bytes are not multiples of the element's {size} bytes")
        stride = tuple(step // size for step in tensor.strides)
        return Raw(tensor.ctypes.data, dtype_name(tensor.dtype, operand), tensor.shape, stride)
    raise TypeError(f"a {type(tensor).__name__} is no tensor: allowed are numpy arrays, torch tensors and Raw")


def c_tensor(tensor, name: str) -> Tensor:
    raw = as_raw(tensor, name in ATTENTION_OPERANDS)
    rank = len(raw.shape)
    if rank > 4:
        raise ValueError(f"{name} has {rank} dimensions: at most 4 are allowed")
    stride = raw.stride
    if stride is None:
        stride = tuple(int(np.prod(raw.shape[i + 1 :], dtype=np.int64)) for i in range(rank))
    pad = (0,) * (4 - rank)
    return Tensor(raw.pointer, DTYPES[raw.dtype], DEVICES[raw.device], rank, 0, (*raw.shape, *pad), (*stride, *pad))
