"""The files for contributors agree with the repository: version, lint commands, paths and links."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from fedsum.version import __version__

ROOT = Path(__file__).parent.parent
PAGES = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".github/PULL_REQUEST_TEMPLATE.md"]
FORMS = ["bug", "feature"]


def test_the_citation_is_complete_and_has_the_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= citation.keys()
    assert {"type", "title", "authors"} <= citation["preferred-citation"].keys()
    assert citation["version"] == __version__


def test_the_changelog_has_the_version():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[:2] == ["Unreleased", __version__]


def lint_commands():
    """The commands of .ci/run between the installation and the tests."""
    lines = (ROOT / ".ci/run").read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("pip install"))
    last = next(number for number, line in enumerate(lines) if line.startswith("pytest"))
    return [line for line in lines[first + 1 : last] if line and not line.startswith("#")]


def hook_commands():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert all(repo["repo"] == "local" for repo in config["repos"])  # other repositories need a network
    assert all(hook["language"] == "system" for hook in hooks)
    for hook in hooks:
        words = shlex.split(hook["entry"])
        yield words[2] if words[:2] == ["bash", "-c"] else hook["entry"]


def test_the_hooks_run_every_lint_command_of_ci():
    commands = lint_commands()
    assert {"ruff check .", "mypy"} <= set(commands)
    assert [command for command in commands if command not in set(hook_commands())] == []


def test_every_path_in_contributing_exists():
    spans = re.findall(r"`([^`\n]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    paths = [span for span in spans if re.fullmatch(r"[\w.-]+/[\w./-]*|[\w.-]+\.(md|py|toml|txt|cff)", span)]
    assert len(paths) > 30
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_name_in_contributing_exists():
    """Names of lists and tests that a step asks to extend: `file`: ... `NAME` ..."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    steps = re.findall(r"^\d+\. (.*?)(?=^\d+\. |^$)", text, re.MULTILINE | re.DOTALL)
    checked = 0
    for step in steps:
        files = re.findall(r"`((?:src|tests)/[\w./]+\.py)`", step)
        source = "".join((ROOT / path).read_text() for path in files)
        for name in re.findall(r"`(_?[A-Z]{3,}|__all__|test_\w+|any_schedule|schedules)`", step):
            if files:
                assert re.search(rf"\b{name}\b", source), f"{name} is not in {files}"
                checked += 1
    assert checked > 12


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_resolve(name):
    page = ROOT / name
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", FORMS)
def test_issue_forms_have_what_github_requires(name):
    form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{name}.yml").read_text())
    assert {"name", "description", "body"} <= form.keys()
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    assert all(part["attributes"]["label"] for part in questions)
    assert len({part["id"] for part in questions}) == len(questions)
