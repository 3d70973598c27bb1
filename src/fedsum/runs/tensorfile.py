"""Streaming writer of safetensors files, with a checksum.

The safetensors library needs all tensors in memory, and copies them. This writer takes them piece by piece, because a
bank of client states changes while it is written. The library can read the files.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_CHECKSUM = "crc32"
_CHUNK = 16 * 2**20


@dataclass(frozen=True)
class Entry:
    """A tensor to write, in pieces along its first dimension."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Iterable[Tensor]

    @classmethod
    def of(cls, tensor: Tensor) -> "Entry":
        return cls(tensor.dtype, tuple(tensor.shape), [tensor])

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def write(path: Path, entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> None:
    """Writes all tensors, then a CRC-32 checksum of all bytes before it, as one more tensor."""
    ordered = _aligned(entries)
    prefix = _header(ordered | {_CHECKSUM: Entry(torch.uint8, (4,), [])}, metadata)
    with path.open("wb") as file:
        checksum = 0
        for data in chain([prefix], _bytes(ordered.values())):
            file.write(data)
            checksum = zlib.crc32(data, checksum)
        file.write(checksum.to_bytes(4, "little"))


def write_model(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes a model for other programs: its tensors only, with the CRC-32 checksum of their bytes in the metadata."""
    ordered = _aligned({name: Entry.of(tensor) for name, tensor in tensors.items()})
    checksum = 0
    for data in _bytes(ordered.values()):
        checksum = zlib.crc32(data, checksum)
    with path.open("wb") as file:
        file.write(_header(ordered, {"format": "pt", _CHECKSUM: f"{checksum:08x}"}))
        for data in _bytes(ordered.values()):
            file.write(data)


def _aligned(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Larger elements first, to align memory-mapped tensors: the format allows no padding between them."""
    return dict(sorted(entries.items(), key=lambda item: -item[1].dtype.itemsize))


def _header(entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> memoryview:
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    offset = 0
    for name, entry in entries.items():
        header[name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": entry.shape,
            "data_offsets": (offset, offset + entry.nbytes),
        }
        offset += entry.nbytes
    header_bytes = json.dumps(header).encode()
    header_bytes += b" " * (-len(header_bytes) % 8)
    return memoryview(len(header_bytes).to_bytes(8, "little") + header_bytes)


def _bytes(entries: Iterable[Entry]) -> Iterator[memoryview]:
    for entry in entries:
        for piece in entry.pieces:
            flat = piece.detach().contiguous().reshape(-1).view(torch.uint8)
            yield flat.numpy().data


def verify(path: Path) -> None:
    """Reads the whole file; raises a ValueError if its checksum is wrong."""
    size = path.stat().st_size
    if size < 12:
        raise ValueError(f"it has only {size} bytes")
    checksum, remaining = 0, size - 4
    with path.open("rb") as file:
        while data := file.read(min(_CHUNK, remaining)):
            checksum = zlib.crc32(data, checksum)
            remaining -= len(data)
        if file.read() != checksum.to_bytes(4, "little"):
            raise ValueError("its checksum is wrong: it is truncated or damaged")
