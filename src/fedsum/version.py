"""The version of fedsum; pyproject.toml reads it from here."""

__version__ = "0.2.0"
"""the version of fedsum"""
