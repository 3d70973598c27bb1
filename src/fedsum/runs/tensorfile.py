"""Tensors streamed into a safetensors file and out of it, with a checksum.

The library writes from tensors that all lie in memory, and copies them; a bank of clients is read piece by piece
while it changes. The format is a header and bytes: what is written here the library reads.
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
    """A tensor that is to come, in pieces along its first dimension."""

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
    """Writes all tensors and, last, the CRC of everything before it."""
    # Larger elements first: the format knows no gaps, and readers map tensors where they lie.
    ordered = dict(sorted(entries.items(), key=lambda item: -item[1].dtype.itemsize))
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name, entry in (*ordered.items(), (_CHECKSUM, Entry(torch.uint8, (4,), []))):
        header[name] = {
            "dtype": _NAMES[entry.dtype],
            "shape": entry.shape,
            "data_offsets": (at, at + entry.nbytes),
        }
        at += entry.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    head = memoryview(len(text).to_bytes(8, "little") + text)
    with path.open("wb") as file:
        checksum = 0
        for data in chain([head], _bytes(ordered.values())):
            file.write(data)
            checksum = zlib.crc32(data, checksum)
        file.write(checksum.to_bytes(4, "little"))


def _bytes(entries: Iterable[Entry]) -> Iterator[memoryview]:
    for entry in entries:
        for piece in entry.pieces:
            flat = piece.detach().contiguous().reshape(-1).view(torch.uint8)
            yield flat.numpy().data


def verified(path: Path) -> None:
    """Reads the whole file once: a ValueError says what is wrong with it."""
    size = path.stat().st_size
    if size < 12:
        raise ValueError(f"it has only {size} bytes")
    checksum, left = 0, size - 4
    with path.open("rb") as file:
        while data := file.read(min(_CHUNK, left)):
            checksum = zlib.crc32(data, checksum)
            left -= len(data)
        if file.read() != checksum.to_bytes(4, "little"):
            raise ValueError("its checksum is wrong: it is cut short or was damaged")
