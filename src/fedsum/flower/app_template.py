"""Writes a complete Flower app from the files in `template/`."""

import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from ..base.checks import InputError
from ..base.files import written_whole

_RENAMED = {"gitignore": ".gitignore"}


def write_app(folder: Path) -> list[Path]:
    """Writes the app into a new or empty folder. The app is named after the folder.

    Returns:
      The paths of all files written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(path.name for path in write_app(Path(folder, "hospital")))[3:]
    ['__init__.py', 'client_app.py', 'pyproject.toml', 'server_app.py', 'task.py']
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("folder", str(folder), "a new or empty folder")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if not name or not name[0].isalpha():
        raise InputError("folder", folder.resolve().name, "a name that begins with a letter")
    module = name.replace("-", "_")
    renamed = _RENAMED | {"app": module}
    paths = []
    for source, relative in _template_files(files(__package__) / "template", Path()):
        text = source.read_text(encoding="utf-8").replace("APP_NAME", name).replace("APP_MODULE", module)
        path = folder / Path(*(renamed.get(part, part) for part in relative.parts))
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(path) as part:
            part.write_text(text, encoding="utf-8")
        paths.append(path)
    return sorted(paths)


def _template_files(folder: Traversable, relative: Path) -> list[tuple[Traversable, Path]]:
    """All files in a folder and below it, with their paths relative to the template."""
    template_files = []
    for entry in folder.iterdir():
        if entry.name == "__pycache__":
            continue
        path = relative / entry.name
        template_files += _template_files(entry, path) if entry.is_dir() else [(entry, path)]
    return template_files
