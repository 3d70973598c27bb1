"""Griffe extension: doctests and indented formulas of docstrings become code blocks of the site."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?P=indent)\S.*|\n(?P=indent) +\S.*)*", re.MULTILINE)


class DoctestBlocks(Extension):
    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(fenced, obj.docstring.value)


def fenced(doctest: re.Match[str]) -> str:
    indent = doctest["indent"]
    return f"{indent}```pycon\n{doctest[0]}\n{indent}```"
