"""Rules for imports between the packages of the source. `lint-imports` checks their order, these tests the rest."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "fedsum"
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if "template" not in path.parts]


def layer(parts):
    """The folder or module right below fedsum."""
    return parts[1] if len(parts) > 1 else ""


def imports(path, text=None):
    """(module as a tuple of names, imported name) of every import from fedsum in a file of the source."""
    package = ("fedsum", *path.relative_to(SOURCE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *(node.module.split(".") if node.module else ()))
            if module[:1] == ("fedsum",):
                yield from ((module, alias.name) for alias in node.names)


def own_layer(path):
    return layer(("fedsum", *path.relative_to(SOURCE).with_suffix("").parts))


def private_imports(path, text=None):
    for module, name in imports(path, text):
        parts = [*module, name]
        private = [part for part in parts if part.startswith("_") and not part.startswith("__")]
        if private and layer(module) != own_layer(path):
            yield ".".join(parts)


def deep_imports(path, text=None):
    """Imports of names that another layer's __init__ does not export; the modules of base/ are its interface."""
    for module, name in imports(path, text):
        if len(module) > 2 and layer(module) not in (own_layer(path), "base"):
            yield ".".join([*module, name])


@pytest.mark.parametrize("path", MODULES, ids=[str(path.relative_to(SOURCE)) for path in MODULES])
def test_other_layers_are_used_through_public_names(path):
    assert not list(private_imports(path))
    assert not list(deep_imports(path))


def test_the_checks_above_can_fail():
    path = SOURCE / "training" / "training_loop.py"
    assert list(private_imports(path, "from ..tasks.task import _scale")) == ["fedsum.tasks.task._scale"]
    assert list(private_imports(path, "from ..engine import _cache")) == ["fedsum.engine._cache"]
    assert not list(private_imports(path, "from .options import _whole"))
    assert list(deep_imports(path, "from ..tasks.task import Task")) == ["fedsum.tasks.task.Task"]
    assert not list(deep_imports(path, "from ..base.checks import InputError\nfrom ..tasks import Task"))


def private_attributes(path):
    """`thing._name` where `thing` is neither self, cls nor something of this module's own classes."""
    tree = ast.parse(path.read_text())
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)}
    own |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    own |= {target.id for node in ast.walk(tree) for target in _assigned(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in own:
            yield f"{path.name}:{node.lineno} {ast.unparse(node)}"


def _is_self(node):
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _assigned(node):
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target for target in targets if isinstance(target, ast.Name)]


# Private names without a public alternative: hooks and children of a module, a tensor's version, the compiler's limits,
# the end of a failed capture, oneDNN's linear layer, immediate exit.
OF_OTHERS = re.compile(
    r"\._(forward_hooks|forward_pre_hooks|backward_hooks|backward_pre_hooks|modules|version|dynamo"
    r"|cuda_endAllocateToPool|linear_pointwise|exit|runtime_client)\b"
)


def test_nobody_reads_the_private_parts_of_other_objects():
    found = [line for path in MODULES for line in private_attributes(path) if not OF_OTHERS.search(line)]
    assert not found


def test_no_two_modules_have_one_name():
    names = Counter(path.stem for path in MODULES if not path.stem.startswith("__"))
    assert not [name for name, count in names.items() if count > 1]


def test_the_documentation_lists_the_layers_in_the_order_that_is_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract.get("containers") == ["fedsum"])
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)` ", (ROOT / "docs/development.md").read_text(), re.MULTILINE)
    assert listed == contract["layers"][::-1]
    there = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert set(listed) == there - {"__init__", "__main__", "__pycache__", "py.typed"}


def test_the_module_is_the_command():
    done = subprocess.run([sys.executable, "-m", "fedsum", "list", "--json"], capture_output=True, check=True)
    assert b"FedSUM-CR" in done.stdout
