"""Files that are there whole or not at all, whatever happens on the way."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`: on the disk and moved there at the end, gone if anything goes wrong.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_whole(folder / "note.txt") as part:
    ...     _ = part.write_text("whole")
    >>> [found.name for found in folder.iterdir()]
    ['note.txt']
    """
    path = Path(path)
    # A name of its own for each writer, so that two at once do not mix; the suffix stays last: writers choose
    # their format by it.
    part = path.with_name(f".{path.stem}.{secrets.token_hex(8)}.part{path.suffix}")
    try:
        yield part
        flush(part)
        part.replace(path)
        flush(path.parent)  # the new name itself is only safe once its folder is
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Waits until a file or folder lies on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_up(folder: Path) -> None:
    """Removes what writers that were killed left in a folder; for whoever alone writes there."""
    for part in folder.glob(".*.part*"):
        part.unlink(missing_ok=True)
