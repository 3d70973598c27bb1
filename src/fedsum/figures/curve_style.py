"""The colour and the dash pattern of a curve by its label: an algorithm looks the same in every figure."""

from collections.abc import Sequence

from .style import COLOURS

PAPER_ALGORITHMS = ("FedSUM", "FedSUM-CR", "FedSUM-B", "SCAFFOLD", "FedAvg", "FedAU", "FedAWE", "FedVARP", "MIFA")
"""the algorithms of the paper, in its order"""

# One dash pattern per colour (points drawn, points left out), so that curves differ in black-and-white print and for
# colour-blind readers too. Curves of the FedSUM family coincide, so their patterns differ most.
DASHES: tuple[tuple[float, ...], ...] = (
    (),
    (6, 2),
    (1.5, 1.5),
    (7, 2, 1.5, 2),
    (),
    (3.5, 1.5),
    (8, 2, 1.5, 2, 1.5, 2),
    (10, 3),
    (2.5, 2.5),
    (5, 1.5, 1.5, 1.5),
    (4, 4),
    (9, 1.5, 3, 1.5),
)
# The drawing order: the FedSUM family is drawn last, and dashed lines after solid lines, which would hide them where
# curves coincide.
LAYERS = tuple(sorted(range(len(DASHES)), key=lambda place: (place < 3, bool(DASHES[place]), place)))


def styles(labels: Sequence[str], name: str) -> dict[str, int]:
    """Each label's index in COLOURS and DASHES. An algorithm has the same index in every figure and report.

    Algorithms with options, such as `FedSUM divide_by_seen=True`, and other algorithms have colours that no algorithm
    of the paper has, while there are such colours.
    """
    taken = {
        label: PAPER_ALGORITHMS.index(label) for label in labels if name == "algorithm" and label in PAPER_ALGORITHMS
    }
    places = range(len(COLOURS))
    free = [place for place in places if place not in taken.values()] or list(places)
    # One solid curve at most, if possible: of two that coincide, only the upper one would be visible.
    free.sort(
        key=lambda place: (name == "algorithm" and place < len(PAPER_ALGORITHMS), place > 0 and not DASHES[place])
    )
    others = [label for label in labels if label not in taken]
    return taken | {label: free[number % len(free)] for number, label in enumerate(others)}
