"""The command line: one module per command, which parses arguments, calls the library and prints."""

from .main import main

__all__ = ["main"]
