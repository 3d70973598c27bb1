"""Files of data sets: fetched once, decoded once into a file of tensors, then memory-mapped."""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from ..base.checks import InputError
from ..base.files import written_whole

# Fetching.


def local_path(repository: str, path: str) -> Path | None:
    """The path in FEDSUM_DATA, a folder with the hub's layout, if it exists there."""
    folder = os.environ.get("FEDSUM_DATA")
    local = Path(folder or "").expanduser() / repository / path
    return local if folder and local.exists() else None


def fetched_file(repository: str, path: str) -> Path:
    """The file of a data set in FEDSUM_DATA, otherwise from the hub."""
    if local := local_path(repository, path):
        return local
    import huggingface_hub

    try:
        return Path(huggingface_hub.hf_hub_download(repository, path, repo_type="dataset"))
    except Exception as error:  # errors of the hub, the network or the disk
        raise InputError(
            "data",
            f"{repository}/{path}",
            f"not found, and the download from the hub failed ({type(error).__name__}): "
            "set FEDSUM_DATA to a folder that contains the file, or run once with network access",
        ) from error


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on a terminal, none in a log; yields the function that advances it."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(label, total=total)
        yield lambda steps: progress.advance(bar, steps)


# The cache: one file per set, with a checksum.


def cache_folder() -> Path:
    if folder := os.environ.get("FEDSUM_CACHE"):
        return Path(folder).expanduser()
    import platformdirs

    return platformdirs.user_cache_path("fedsum", appauthor=False)


def write_tensors(path: Path, format: str, name: str, tensors: dict[str, Tensor]) -> None:
    """Writes a cache file atomically: concurrent processes write temporary files, and the last rename wins.

    Args:
      path: of the cache file.
      format: of its tensors; a reader refuses any other.
      name: of the set.
      tensors: by name.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as part:
            part.touch(exist_ok=False)
            mode = part.stat().st_mode
            save_file(tensors, part, metadata={"format": format, "set": name, "sha256": _checksum(tensors)})
            part.chmod(mode)  # safetensors makes files that only their owner may read, but caches are shared
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"cache file {path}", str(error), "a file that can be written; FEDSUM_CACHE names another folder"
        ) from error


def read_tensors(path: Path, format: str, name: str) -> dict[str, Tensor]:
    """The tensors of a cache file, memory-mapped, verified by checksum."""
    from safetensors import SafetensorError, safe_open

    accepted = f"a cache of {name} written by this version; delete the file to decode the set again"
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors: dict[str, Tensor] = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"cache file {path}", str(error), accepted) from error
    identity = metadata.get("format"), metadata.get("set")
    if identity != (format, name):
        raise InputError(f"cache file {path}", identity, accepted)
    if metadata.get("sha256") != _checksum(tensors):
        raise InputError(f"cache file {path}", "a wrong checksum", accepted)
    return tensors


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for key in sorted(tensors):
        tensor = tensors[key]
        digest.update(f"{key} {tensor.dtype} {tuple(tensor.shape)};".encode())
        digest.update(tensor.numpy().data)
    return digest.hexdigest()
