"""Atomic writes: after a crash, a file has its old content or its new content, never a part."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary path in the folder of `path`. At the end the file is flushed to disk and renamed to `path`.

    If the block raises, the temporary file is deleted.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_whole(folder / "note.txt") as part:
    ...     _ = part.write_text("whole")
    >>> [file.name for file in folder.iterdir()]
    ['note.txt']
    """
    path = Path(path)
    # Each writer has its own name, so that two concurrent writers do not mix. The suffix stays last, because
    # libraries choose the format by it.
    part = path.with_name(f".{path.stem}.{secrets.token_hex(8)}.part{path.suffix}")
    try:
        yield part
        flush(part)
        part.replace(path)
        flush(path.parent)  # the new name is durable only after its folder is flushed
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Waits until a file or folder is on disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def delete_partial_files(folder: Path) -> None:
    """Deletes the temporary files that killed writers left in `folder`; only for the folder's single writer."""
    for part in folder.glob(".*.part*"):
        part.unlink(missing_ok=True)
