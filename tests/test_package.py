"""The package as a whole: light to import, and its documentation is correct."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import fedsum

ROOT = Path(__file__).parent.parent


def test_import_needs_torch_and_numpy_alone():
    code = (
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "import fedsum\n"
        "print(*{name.split('.')[0] for name in set(sys.modules) - before})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    loaded = {name for name in modules if name not in sys.stdlib_module_names and "cython" not in name}
    assert "fedsum" in loaded
    assert loaded <= {"fedsum", "numpy", "torch"}


def test_public_names_exist():
    assert all(hasattr(fedsum, name) for name in fedsum.__all__)


def test_ci_runs_the_commands_of_the_readme():
    ci, readme = (ROOT / ".ci/run").read_text(), (ROOT / "README.md").read_text()
    assert "pip install -c constraints.txt -e '.[dev]' && pytest" in readme
    assert "pip install -c constraints.txt -e . && fedsum demo" in readme
    assert "pip install -q -c constraints.txt -e '.[dev]'" in ci
    assert re.search(r"^pytest\b", ci, re.MULTILINE)


def test_every_install_command_uses_the_constraints():
    for path in [ROOT / "README.md", ROOT / ".ci/run", *(ROOT / "docs").glob("*.md")]:
        for command in re.findall(r"pip install[^\n`]*", path.read_text()):
            assert "-c constraints.txt" in command, f"{path}: {command}"


def links():
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in target:
                yield pytest.param(path, target, id=f"{path.relative_to(ROOT)}-{target}")


def anchors(path):
    """The anchors of a Markdown page, as GitHub makes them from its headings."""
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(("page", "target"), list(links()))
def test_links_of_the_documents_resolve(page, target):
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    assert path.exists()
    assert not anchor or anchor in anchors(path)
