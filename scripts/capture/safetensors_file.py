"""Writes and reads safetensors with bit-for-bit repeatable headers (the usual writer orders metadata at random)."""

import json
import lzma
from pathlib import Path

import torch

DTYPES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.float16: "F16"}

# The settings that pack bf16 best: two-byte positions, and the top bit of the low byte predicts the high byte.
XZ_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 3, "lp": 1, "pb": 1}]


def encode(tensors, metadata):
    """The bytes of a safetensors file: tensors in the given order, metadata sorted by key."""
    header, offset = {"__metadata__": {key: str(metadata[key]) for key in sorted(metadata)}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    parts = [len(text).to_bytes(8, "little"), text]
    parts += [tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors.values()]
    return b"".join(parts)


def decode(data):
    """(tensors, metadata) of the bytes of a safetensors file."""
    names = {name: dtype for dtype, name in DTYPES.items()}
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        start, end = (8 + size + offset for offset in entry["data_offsets"])
        raw = torch.frombuffer(bytearray(data[start:end]), dtype=torch.uint8)
        tensors[name] = raw.view(names[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def pack(data, path):
    """The bytes as the file `path` holds them: xz where its name says so."""
    if Path(path).suffix == ".xz":
        return lzma.compress(data, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC64, filters=XZ_FILTERS)
    return data


def unpack(path):
    data = Path(path).read_bytes()
    return lzma.decompress(data) if Path(path).suffix == ".xz" else data
