"""The wheel has the package and nothing else; the source distribution has no tests and no results.

`.ci/run` installs the wheel in an empty environment and runs the demo from it.
"""

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from doc_blocks import ROOT

DATA = {
    "py.typed": 1,
    "experiments/*.toml": None,
    "flower/template/LICENSE": 1,
    "flower/template/README.md": 1,
    "flower/template/gitignore": 1,
    "flower/template/pyproject.toml": 1,
    "report/web/*.css": 1,
    "report/web/*.html": 1,
    "report/web/*.js": None,
}
"""files of the package that are not Python, and how many; None: any number but zero"""
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
SDIST = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "constraints.txt"} | {
    "pyproject.toml",
    "setup.cfg",
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Both distributions, built from a copy of the checkout, which stays clean."""
    folder = tmp_path_factory.mktemp("dist")
    (folder / "copy").mkdir()
    no_builds = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for path in (path for path in ROOT.iterdir() if not path.name.startswith(".")):
        if path.is_file():
            shutil.copy(path, folder / "copy")
        elif path.name in ("benchmarks", "docs", "examples", "src", "tests"):
            shutil.copytree(path, folder / "copy" / path.name, ignore=no_builds)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(folder / "copy")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel, tarfile.open(next(folder.glob("*.tar.gz"))) as sdist:
        files = [member.name.split("/", 1)[1] for member in sdist.getmembers() if member.isfile()]
        return set(wheel.namelist()), set(files)


def package_files():
    source = ROOT / "src"
    return {
        path.relative_to(source).as_posix()
        for path in (source / "fedsum").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_package_and_no_other(built):
    wheel, _ = built
    metadata = {name.split("/", 1)[1] for name in wheel if ".dist-info/" in name}
    assert metadata == METADATA
    assert {name for name in wheel if ".dist-info/" not in name} == package_files()


def test_the_files_that_are_not_python_are_listed(built):
    wheel, _ = built
    data = {Path(name) for name in wheel if name.startswith("fedsum/") and not name.endswith(".py")}
    for pattern, count in DATA.items():
        found = {path for path in data if path.match(f"fedsum/{pattern}")}
        assert found if count is None else len(found) == count, pattern
        data -= found
    assert data == set()


def test_the_source_distribution_has_no_tests_and_no_results(built):
    _, sdist = built
    outside = {name for name in sdist if not name.startswith(("src/fedsum/", "src/fedsum.egg-info/"))}
    assert outside == SDIST
    assert {name.removeprefix("src/") for name in sdist if name.startswith("src/fedsum/")} == package_files()
