"""The documentation site builds without warnings, has no dead link, and needs no other host."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from doc_blocks import ROOT
from reference_pages import public_names


def build(folder, config=ROOT / "mkdocs.yml"):
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


class Links(HTMLParser):
    """What a page links to, what it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.loaded, self.anchors, self.classes = set(), set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id") or values.get("name"))
        self.classes.update((values.get("class") or "").split())
        if tag == "a" and values.get("href"):
            self.targets.add(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.add(values["href"])
        elif values.get("src"):
            self.loaded.add(values["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    pages = {path: Links(path.read_text()) for path in folder.rglob("*.html")}
    return folder, pages


def dead_links(pages):
    for path, page in pages.items():
        for target in page.targets | page.loaded:
            name, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", name) or path.name == "404.html":
                continue
            linked = (path.parent / unquote(name)).resolve() if name else path
            linked = linked / "index.html" if linked.is_dir() else linked
            no_anchor = anchor and linked in pages and unquote(anchor) not in pages[linked].anchors
            if no_anchor or not linked.is_file():
                yield f"{path.name}: {target}"


def test_no_link_is_dead(site):
    _, pages = site
    assert len(pages) > 30
    assert list(dead_links(pages)) == []


def test_marks_in_code_do_not_change_its_text(site):
    folder, _ = site
    page = (folder / "trace-to-rates.html").read_text()
    assert '<span class="option">--fit</span>' in page
    assert "fedsum delays sightings.csv --round-length 3600 --fit" in re.sub(r"<[^>]*>", "", page)
    assert not [
        path for path in folder.rglob("*.html") if re.search(r"option[\"']?>-|wbr>", unmarked(path.read_text()))
    ]


def unmarked(html):
    """A page without the marks."""
    return re.sub(r'<span class="option">(-[\w-]+)</span>|<wbr>', r"\1", html)


def test_no_page_loads_from_another_host(site):
    folder, pages = site
    for path, page in pages.items():
        assert not [target for target in page.loaded if "//" in target], path
        # The theme would load Mermaid from another host for this class.
        assert "mermaid" not in page.classes, path
    for sheet in folder.rglob("*.css"):
        assert not re.search(r"(url\(|@import )[\"']?(https?:)?//", sheet.read_text()), sheet


def test_no_markdown_is_left(site):
    """MkDocs needs an empty line before lists and tables, which GitHub does not need."""
    _, pages = site
    for path in pages:
        text = re.sub(r"<(pre|code|script|style).*?</\1>|<!--.*?-->", "", path.read_text(), flags=re.DOTALL)
        left = re.findall(r"^ *(?:<p>)?(?:\|.*\||```.*|- .*|\d+\. .*|#+ .*)$", text, re.MULTILINE)
        assert left == [], path


def test_every_public_name_is_in_the_reference(site):
    folder, _ = site
    text = "".join(path.read_text() for path in (folder / "reference/api").glob("*.html"))
    shown = {heading.split(".")[-1] for heading in re.findall(r"<h3[^>]*>.*?(fedsum\.[\w.]+)", text, re.DOTALL)}
    public = {name for _, name, _ in public_names()}
    assert public - shown == {"__version__", "tasks", "theory"}


def test_a_dead_link_fails_the_build(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Title\n\n[a](no.md) [b](#no)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: x\nvalidation: {anchors: warn}\n")
    done = build(tmp_path / "site", Path(tmp_path / "mkdocs.yml"))
    assert done.returncode == 1
    assert "'no.md'" in done.stderr
    assert "no such anchor" in done.stderr or "'#no'" in done.stderr
