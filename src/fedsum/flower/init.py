"""A complete Flower app, written from the template beside this file."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ..base.checks import InputError
from ..base.files import written_whole


def write_app(folder: Path) -> list[Path]:
    """Writes the app into a new or empty folder, whose name becomes the app's."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("folder", str(folder), "a new or empty folder")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if not name or not name[0].isalpha():
        raise InputError("folder", folder.resolve().name, "a name that begins with a letter")
    module = name.replace("-", "_")
    template = files(__package__) / "template"
    written = []
    for source, place in _walk(template, Path()):
        text = source.read_text(encoding="utf-8").replace("APP_NAME", name).replace("APP_MODULE", module)
        target = folder / Path(*({"app": module, "gitignore": ".gitignore"}.get(part, part) for part in place.parts))
        target.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(target) as part:
            part.write_text(text, encoding="utf-8")
        written.append(target)
    return sorted(written)


def _walk(folder: Traversable, place: Path) -> list[tuple[Traversable, Path]]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, place / entry.name) if entry.name != "__pycache__" else []
        else:
            found.append((entry, place / entry.name))
    return found
