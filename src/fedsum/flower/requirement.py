"""Whether Flower is installed; it is an extra of fedsum."""

from importlib.util import find_spec

from ..base.checks import InputError

INSTALL = "pip install 'fedsum[flower]'"


def require_flower() -> None:
    """Raises an InputError if Flower is not installed."""
    if find_spec("flwr") is None:
        raise InputError("flower", "not installed", INSTALL)
