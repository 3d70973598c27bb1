"""The pages of the API reference: one mkdocstrings directive per public name, grouped by the module that defines it.

The names are read from `__all__` without importing fedsum. The pages exist in the site only, because GitHub would show
the directives.
"""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/fedsum"
ROOT_PAGES = {
    "algorithms": ("Algorithms", ("algorithms",)),
    "participation": ("Participation", ("participation",)),
    "runs": ("Simulation and runs", ("simulate", "compare", "training", "runs", "spec", "base.checks")),
}
"""the pages of names in `fedsum` itself: their titles, and the modules that the names are imported from

`fedsum.Metric` is on the page of `fedsum.tasks`.
"""
OTHER_PAGES = {
    "tasks": "Tasks: fedsum.tasks",
    "theory": "Theory: fedsum.theory",
    "report": "Reports: fedsum.report",
    "flower": "Deployment: fedsum.flower",
}
FIRST = ("simulate", "compare", "Task", "vision", "FedSUM", "FedSUMB", "FedSUMCR")
"""names at the top of their page"""
WITH_INHERITED = ("Task",)
"""classes whose base class is not public, so that their page has its methods"""
NOTES = {"simulate": "All other arguments are settings of the run: [Settings](../settings.md#run).\n\n"}


def api_pages() -> dict[str, str]:
    """Markdown by path in the site."""
    pages = {}
    homes = imported_from("")
    for name, (title, modules) in ROOT_PAGES.items():
        names = [public for public in all_names("") if homes.get(public) in modules]
        pages[name] = page(title, [(f"fedsum.{public}", defined_as("", public)) for public in names])
    for name, title in OTHER_PAGES.items():
        pages[name] = page(title, [(f"fedsum.{name}.{public}", defined_as(name, public)) for public in all_names(name)])
    return {f"reference/api/{name}.md": text for name, text in pages.items()}


def defined_as(module: str, name: str) -> str:
    """The path of a name in the module that defines it, since a module may have the name of its function."""
    home = (imported_from(module) | lazy_modules(module)).get(name)
    if home is None:  # a module
        return ".".join(["fedsum", *module.split("/"), name])
    inner = "/".join(part for part in (module, home.replace(".", "/")) if part)
    if (SOURCE / inner).is_dir():
        return defined_as(inner, name)
    return ".".join(["fedsum", *inner.split("/"), name])


def page(title: str, names: list[tuple[str, str]]) -> str:
    def rank(shown: str) -> int:
        last = shown.split(".")[-1]
        return FIRST.index(last) if last in FIRST else len(FIRST)

    parts = [f"# {title}\n\n"]
    for shown, target in sorted(names, key=lambda pair: rank(pair[0])):
        last = shown.split(".")[-1]
        inherited = "      inherited_members: true\n" if last in WITH_INHERITED else ""
        parts.append(f"::: {target}\n    options:\n      heading: {shown}\n      toc_label: {last}\n{inherited}\n")
        parts.append(NOTES.get(last, ""))
    return "".join(parts)


def assigned(module: str, name: str) -> ast.expr | None:
    """What is assigned to a name in a package's __init__.py."""
    for node in ast.parse((SOURCE / module / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return node.value
    return None


def all_names(module: str) -> list[str]:
    """The names in `__all__`, without those of another package, which have their place on another page."""
    tree = ast.parse((SOURCE / module / "__init__.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level > 1]
    others = {alias.name for node in imports for alias in node.names} | {"__version__"}
    return [name for name in ast.literal_eval(assigned(module, "__all__")) if name not in others]


def lazy_modules(module: str) -> dict[str, str]:
    """The modules of names that a package imports on first use."""
    found = assigned(module, "_MODULES")
    return ast.literal_eval(found) if found else {}


def imported_from(module: str) -> dict[str, str]:
    tree = ast.parse((SOURCE / module / "__init__.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
