"""Figures as files."""

from pathlib import Path

from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from ..base.checks import InputError
from ..base.files import written_whole


def save(figure: Figure, path: str | Path) -> Path:
    """Writes the figure atomically and returns its absolute path."""
    check_path(path)
    with written_whole(path) as part:
        figure.savefig(part, dpi=150)
    return Path(path).resolve()


def check_path(path: str | Path) -> None:
    """Refuses a path that no figure can be written to; called before anything is computed."""
    path = Path(path)
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise InputError("out", str(path), f"a file ending in one of: {', '.join(sorted(formats))}")
    if not path.parent.is_dir():
        raise InputError("out", str(path), "a file in an existing folder")
