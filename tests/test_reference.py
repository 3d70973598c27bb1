"""The reference is complete and up to date: public names, commands and settings."""

import inspect

import pytest
from reference_pages import FOLDER, PAGES, page, public_names

NO_EXAMPLE = {
    "fedsum": {"Algorithm", "Compressor", "ServerOptimiser", "Training"},
    "fedsum.tasks": {"BaseTask", "Images", "Network", "leaf", "network_of", "sentences_at_hand", "text"},
    "fedsum.theory": set(),
    "fedsum.report": {
        *("Comparison", "Facets", "against_delay", "against_setting", "bars", "compare", "delays", "facets", "fill"),
        *("panel_figure", "rate_advice", "render", "setting_table"),
    },
    "fedsum.flower": {
        *("DeploymentStatus", "Federation", "Journal", "Ledger", "RoundOutcome", "ServerTask", "client_app"),
        *("deployment_status", "make_request", "require_flower", "restore_backup", "server_app", "write_backup"),
    },
}
"""public classes and functions whose docstring has no example yet; the sets may only shrink"""


def has_example(value):
    """Whether the docstring of a function, of a class or of one of its own methods has a doctest."""
    docs = [value.__doc__, *(getattr(member, "__doc__", "") for member in vars(value).values())]
    return any(">>> " in (doc or "") for doc in (docs if inspect.isclass(value) else docs[:1]))


def documentable():
    # Constants and aliases for annotations have no docstring that Python keeps.
    for module, name, value in public_names():
        if (inspect.isclass(value) or inspect.isroutine(value)) and value.__module__.startswith("fedsum"):
            yield module, name, value


def test_every_public_name_has_a_docstring():
    assert [(module, name) for module, name, value in documentable() if not value.__doc__] == []


def test_every_public_name_has_an_example():
    missing = {module: set() for module in NO_EXAMPLE}
    for module, name, value in documentable():
        if not has_example(value):
            missing[module].add(name)
    assert missing == NO_EXAMPLE


@pytest.mark.parametrize("name", PAGES)
def test_the_generated_pages_are_up_to_date(name):
    assert (FOLDER / name).read_text() == page(name), "run python tests/reference_pages.py --write"
