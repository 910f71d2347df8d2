"""Reads character vectors from the lazy-load database of an installed R package (Rdata.rdx and Rdata.rdb).

The index (.rdx) is a gzipped R serialization of name -> (offset, length). Each record of the database (.rdb) is the
big-endian uncompressed length, a type byte where the record is not plain zlib, and a compressed R serialization.
"""

import bz2
import gzip
import lzma
import struct
import zlib
from pathlib import Path


class RDataError(ValueError):
    """The files are not what an R package ships."""


NIL, SYMBOL, PAIRLIST, CHAR, LOGICAL, INTEGER, REAL, STRING, LIST = 254, 1, 2, 9, 10, 13, 14, 16, 19
REFERENCE = 255
HAS_ATTRIBUTES, HAS_TAG = 1 << 9, 1 << 10


class _Reader:
    """R's serialization in its binary big-endian form, as far as data frames of text need it."""

    def __init__(self, data):
        self.data, self.at, self.references = data, 0, []
        if data[:2] != b"X\n":
            raise RDataError(f"an R serialization starts with 'X\\n', this one with {data[:2]!r}")
        self.at = 2
        version, _, _ = self.ints(3)
        if version == 3:
            self.take(self.ints(1)[0])  # the native encoding's name
        elif version != 2:
            raise RDataError(f"serialization version {version} is unknown, 2 and 3 are read")

    def take(self, count):
        if count < 0 or self.at + count > len(self.data):
            raise RDataError(f"the serialization ends at byte {len(self.data)}, {count} more were needed")
        self.at += count
        return self.data[self.at - count : self.at]

    def ints(self, count):
        return struct.unpack(f">{count}i", self.take(4 * count))

    def item(self):
        flags = self.ints(1)[0]
        kind = flags & 0xFF
        if kind == NIL:
            return None
        if kind == REFERENCE:
            return self.references[(flags >> 8) - 1]
        if kind == SYMBOL:
            self.references.append(self.item())
            return self.references[-1]
        if kind == CHAR:
            length = self.ints(1)[0]
            return None if length == -1 else self.take(length).decode("latin-1" if flags & (1 << 14) else "utf-8")
        if kind == PAIRLIST:
            return self.pairlist(flags)
        value = self.vector(kind)
        if flags & HAS_ATTRIBUTES:
            names = (self.item() or {}).get("names")
            if names and kind == LIST:
                return dict(zip(names, value, strict=True))
        return value

    def vector(self, kind):
        length = self.ints(1)[0]
        if kind in (LOGICAL, INTEGER):
            return list(self.ints(length))
        if kind == REAL:
            return list(struct.unpack(f">{length}d", self.take(8 * length)))
        if kind in (STRING, LIST):
            return [self.item() for _ in range(length)]
        raise RDataError(f"R type {kind} is not read here")

    def pairlist(self, flags):
        pairs = {}
        while flags & 0xFF == PAIRLIST:
            if flags & HAS_ATTRIBUTES:
                self.item()
            tag = self.item() if flags & HAS_TAG else len(pairs)
            pairs[tag] = self.item()
            flags = self.ints(1)[0]
        return pairs


def _decompress(record):
    length, kind = struct.unpack(">I", record[:4])[0], record[4:5]
    if kind == b"Z":
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
        data = lzma.decompress(record[5:], format=lzma.FORMAT_RAW, filters=filters)
    elif kind == b"2":
        data = bz2.decompress(record[5:])
    elif kind == b"0":
        data = record[5:]
    else:
        data = zlib.decompress(record[4:])
    if len(data) != length:
        raise RDataError(f"a record unpacks to {len(data)} bytes, its header says {length}")
    return data


def read_variable(folder, name):
    """The variable `name` of the package data in `folder`: a list of strings, or a dict of columns."""
    folder = Path(folder)
    try:
        index = _Reader(gzip.decompress((folder / "Rdata.rdx").read_bytes())).item()["variables"]
        if name not in index:
            raise RDataError("{} has no variable {!r}, it has {}".format(folder, name, ", ".join(sorted(index))))
        offset, length = index[name]
        record = (folder / "Rdata.rdb").read_bytes()[offset : offset + length]
        return _Reader(_decompress(record)).item()
    except (KeyError, IndexError, struct.error, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError) as error:
        raise RDataError(f"{folder} is not R package data: {error}") from error
