"""Runs the program and reads and writes safetensors files with the standard library alone."""

import fcntl
import json
import math
import os
import pty
import random
import struct
import subprocess
import tempfile
import termios
import unittest

PROGRAM = os.environ["LONGHAUL_PROGRAM"]


def run(*arguments, env=None, **options):
    """One call: exit status and output. LONGHAUL_* variables of the caller do not reach it."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    clean.update(env or {})
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], env=clean, text=True, capture_output=True, timeout=300, **options
    )


def run_on_terminal(*arguments, env=None):
    """As run(), with a terminal of 100 columns as standard error."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, 100, 0, 0))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("LONGHAUL_")}
    clean.update(env or {})
    with subprocess.Popen(
        [PROGRAM, *map(str, arguments)], env=clean, stdout=subprocess.DEVNULL, stderr=theirs
    ) as process:
        os.close(theirs)
        said = bytearray()
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
    os.close(ours)
    return process.returncode, said.decode()


class ProgramTest(unittest.TestCase):
    """Each test has an empty folder of its own: self.path('x') lies in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def read_json(self, name):
        return json.loads(self.read(name))

    def fine(self, *arguments, **options):
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, "")
        return result.stdout

    def fails(self, status, pattern, *arguments, **options):
        """Exit status, one sentence on standard error, and nothing on standard output or left in the folder."""
        before = sorted(os.listdir(self.folder))
        result = run(*arguments, **options)
        self.assertEqual(result.returncode, status, result.stderr)
        self.assertRegex(result.stderr, pattern)
        self.assertRegex(result.stderr, r"\Alonghaul[ a-z]*: [^\n]+\n\Z")
        self.assertEqual(result.stdout, "")
        self.assertEqual(sorted(os.listdir(self.folder)), before)


# --- safetensors ---

_CODES = {"F32": "f", "I32": "i", "I64": "q", "U8": "B"}


def bf16(values):
    """Bits of bfloat16 values, rounded to nearest."""
    out = bytearray()
    for value in values:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        out += struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return bytes(out)


def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, values)."""
    header, data = {}, bytearray()
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, values) in tensors.items():
        raw = bf16(values) if dtype == "BF16" else struct.pack(f"<{len(values)}{_CODES[dtype]}", *values)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """(metadata, name -> (dtype, shape, values))."""
    with open(path, "rb") as file:
        raw = file.read()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8 : 8 + size])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            halves = struct.unpack(f"<{(end - begin) // 2}H", raw[begin:end])
            values = [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in halves]
        else:
            code = _CODES[entry["dtype"]]
            values = list(struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}", raw[begin:end]))
        tensors[name] = (entry["dtype"], entry["shape"], values)
    return metadata, tensors


def normal(count, seed, scale=1.0):
    generator = random.Random(seed)
    return [scale * generator.gauss(0, 1) for _ in range(count)]


def runs(tokens, heads, d, seed, scale=1.0, length=16):
    """Rows [tokens, heads, d] that `length` neighbours nearly share: some blocks of scores are high, some low."""
    generator = random.Random(seed)
    rows = [[0.0] * d for _ in range(heads)]
    values = []
    for token in range(tokens):
        for head in range(heads):
            if token % length == 0:
                rows[head] = [generator.gauss(0, 1) for _ in range(d)]
            values += [scale * (x + generator.gauss(0, 0.1)) for x in rows[head]]
    return values


def qkv(tokens=96, heads_q=4, heads_kv=2, d=64, kv_tokens=None, dtype="F32", prefix="", query_scale=4.0, run=16):
    """Query, key and value drawn at random; a large query scale makes some blocks worth skipping."""
    kv_tokens = kv_tokens or tokens
    return {
        prefix + "query": (dtype, [tokens, heads_q, d], runs(tokens, heads_q, d, 1, query_scale, run)),
        prefix + "key": (dtype, [kv_tokens, heads_kv, d], runs(kv_tokens, heads_kv, d, 2, 1.0, run)),
        prefix + "value": (dtype, [kv_tokens, heads_kv, d], normal(kv_tokens * heads_kv * d, 3)),
    }


def dense_attention(tensors, token, head):
    """One output row and its log-sum-exp in plain Python: causal, bottom-right aligned."""
    _, (tokens, heads_q, d), query = tensors["query"]
    _, (kv_tokens, heads_kv, _), key = tensors["key"]
    value = tensors["value"][2]
    kv_head = head // (heads_q // heads_kv)
    row = query[(token * heads_q + head) * d :][:d]

    def keys(j):
        return key[(j * heads_kv + kv_head) * d :][:d]

    visible = range(kv_tokens - tokens + token + 1)
    scores = [sum(a * b for a, b in zip(row, keys(j), strict=True)) / math.sqrt(d) for j in visible]
    top = max(scores)
    weights = [math.exp(s - top) for s in scores]
    total = sum(weights)
    output = [
        sum(w * value[(j * heads_kv + kv_head) * d + i] for j, w in zip(visible, weights, strict=True)) / total
        for i in range(d)
    ]
    return output, top + math.log(total)
