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


def save_small(figure: Figure, path: str | Path) -> Path:
    """Writes the figure as a PNG file with a palette, a fourth of the size: for repositories and mails."""
    from PIL import Image

    if Path(path).suffix.lower() != ".png":
        raise InputError("file", str(path), "a file ending in .png")
    check_path(path)
    with written_whole(path) as part:
        figure.savefig(part, dpi=110)
        with Image.open(part) as image:
            # An octree keeps the colours of thin lines. Pillow's default merges them in figures with many curves.
            small = image.convert("RGB").quantize(96, method=Image.Quantize.FASTOCTREE)
        small.save(part, optimize=True)
    return Path(path).resolve()


def check_path(path: str | Path) -> None:
    """Refuses a path that no figure can be written to; called before anything is computed."""
    path = Path(path)
    formats = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in formats:
        raise InputError("out", str(path), f"a file ending in one of: {', '.join(sorted(formats))}")
    if not path.parent.is_dir():
        raise InputError("out", str(path), "a file in an existing folder")
