"""Tensors and text in a safetensors file with a SHA-256, so that damage is found when the file is read."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ...base.files import written_whole

CHECKSUM = "sha256"
"""the checksum's name in the metadata"""


class DamagedFile(ValueError):
    """A file is truncated, or its content is not what was written."""


def write_checked(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Writes the file whole. On return it is on disk."""
    # safetensors refuses tensors that share memory, as expanded and received ones may.
    copies = {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    with written_whole(path) as part:
        try:
            save_file(copies, part, {**metadata, CHECKSUM: _checksum(copies, metadata)})
        except SafetensorError as error:  # raised when the disk is full
            raise OSError(str(error)) from error


def read_checked(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file. Raises a DamagedFile."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = dict(file.metadata() or {})
            # Copied, because a memory-mapped file may be replaced while it is used.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118  # not a mapping
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFile(f"{path.name} cannot be read ({error})") from error
    if metadata.pop(CHECKSUM, "") != _checksum(tensors, metadata):
        raise DamagedFile(f"{path.name} is damaged: its checksum is wrong")
    return tensors, metadata


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata alone, unchecked. Raises a DamagedFile."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFile(f"{path.name} cannot be read ({error})") from error


def _checksum(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(metadata):
        digest.update(f"{name}={metadata[name]};".encode())
    for name in sorted(tensors):
        value = tensors[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        digest.update(value.numpy().data.cast("B") if value.numel() else b"")
    return digest.hexdigest()
