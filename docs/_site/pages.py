"""MkDocs hook: pages from outside docs/, the API reference, and links to other files of the repository.

Pages are written for GitHub: their links are relative to the file. The site has the folder docs/ as its root. This hook
adds README.md and a few other pages, copies linked files that are not pages, and rewrites links accordingly.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from posixpath import relpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from api_pages import api_pages  # a neighbour of this file, which is no package

ROOT = Path(__file__).parents[2]
MORE_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples/index.md",
    "benchmarks/peers/README.md": "benchmarks/peers/index.md",
    "src/fedsum/flower/template/README.md": "deploy/app.md",
}
"""pages outside docs/, and their places in the site"""
TEMPLATE_NAMES = {"APP_NAME": "my-app", "APP_MODULE": "my_app"}
"""what `fedsum flower init my-app` puts in place of the names in its template"""
CODE = re.compile(r"(<pre.*?</pre>)|(?<=<code>)([^<]*)(?=</code>)", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
NAME_PART = re.compile(r"(?<=\w)([_.=/(])(?=\w)")
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, uri in MORE_PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for uri, text in api_pages().items():
        files.append(File.generated(config, uri, content=text))
    for path in sorted(linked_files()):
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page.file.abs_src_path
    if source is None or not source.endswith(".md"):
        return markdown
    for name, value in TEMPLATE_NAMES.items():
        markdown = markdown.replace(name, value)
    folder = Path(source).parent
    return outside_fences(
        markdown, lambda link: relpath(site_path(folder, link[1]), Path(page.file.src_uri).parent.as_posix())
    )


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks options in code, such as --json, and where names may break on a phone; site.css uses both marks."""

    def marked(found: re.Match[str]) -> str:
        return found[1] or OPTION.sub(r'<span class="option">\g<0></span>', NAME_PART.sub(r"\1<wbr>", found[2]))

    return CODE.sub(marked, html)


def outside_fences(markdown: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Replaces the links of a page, but not what looks like links in its code."""
    parts = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(part if i % 2 else LINK.sub(replace, part) for i, part in enumerate(parts))


def site_path(folder: Path, target: str) -> str:
    """Where a file that a page in `folder` links to is in the site."""
    path = (folder / target).resolve()
    if path.is_dir():
        path = path / "README.md"
    name = path.relative_to(ROOT).as_posix()
    return MORE_PAGES.get(name) or name.removeprefix("docs/")


def linked_files() -> set[str]:
    """Files outside docs/ that pages link to and that are not pages themselves."""
    found = set()
    for page in [*(ROOT / name for name in MORE_PAGES), *(ROOT / "docs").rglob("*.md")]:

        def note(link: re.Match[str], folder: Path = page.parent) -> str:
            path = (folder / link[1]).resolve()
            if path.is_file() and (name := path.relative_to(ROOT).as_posix()) not in MORE_PAGES:
                found.update({name} if not name.startswith("docs/") else ())
            return link[1]

        outside_fences(page.read_text(), note)
    return found
