"""The looks of curves: one colour per value of a facet, and dash patterns."""

from collections.abc import Sequence
from typing import Any

from matplotlib.lines import Line2D

from ..figures import COLOURS, DASHES, LAYERS, styles
from .facets import Facets, values

Labels = tuple[str, str]
"""a curve's values of the facets with a colour and with a dash pattern each; the second may be empty"""
_DISTINCT = 4
"""how many of the first DASHES differ without their colours"""


def look(place: int, dash: int | None = None) -> dict[str, Any]:
    """The line style of a curve, as matplotlib options.

    Args:
      place: its index in COLOURS.
      dash: its index in DASHES; default: `place`.
    """
    pattern = DASHES[place if dash is None else dash]
    width = 1.8 if dash is None and not pattern else 1.2
    return {"color": COLOURS[place], "linestyle": (0, pattern) if pattern else "-", "linewidth": width}


def looks(curves: Sequence[Facets], compare: str, dash: str | None) -> dict[Labels, dict[str, Any]]:
    """The looks of all curves of a panel, in the order of drawing."""
    labels, patterns = values(curves, compare), _patterns(curves, dash)
    places = styles(labels, compare)
    labels.sort(key=lambda label: LAYERS.index(places[label]))
    if dash is None:
        return {(label, ""): look(places[label]) for label in labels}
    return {(label, value): look(places[label], patterns[value]) for value in patterns for label in labels}


def legend(curves: Sequence[Facets], compare: str, dash: str | None) -> list[Line2D]:
    """Entries for the values of `compare`, then in grey for those of `dash`; none for a facet with a single value."""
    labels, patterns = values(curves, compare), _patterns(curves, dash)
    places = styles(labels, compare)
    entries = {label: look(places[label], 0 if dash else None) for label in labels} if len(labels) > 1 else {}
    if len(patterns) > 1:
        entries |= {label: look(0, pattern) | {"color": "0.4"} for label, pattern in patterns.items()}
    return [Line2D([], [], label=label, **style) for label, style in entries.items()]


def _patterns(curves: Sequence[Facets], dash: str | None) -> dict[str, int]:
    """The index in DASHES per value of the facet `dash`."""
    return {value: number % _DISTINCT for number, value in enumerate(values(curves, dash) if dash else [])}
