"""fedsum list"""

import dataclasses

from rich.table import Table

from ..algorithms import ALGORITHMS, card
from .console import Json, out, print_json


def list_algorithms(as_json: Json = False) -> None:
    """List the algorithms, with their states and the vectors that each client and the server send per round."""
    cards = [card(cls()) for cls in ALGORITHMS.values()]
    if as_json:
        print_json([dataclasses.asdict(c) for c in cards])
        return
    table = Table(
        title="Algorithms",
        caption="vectors of the model's size; scalars in parentheses; memory per client is on the server; "
        "summable: uplinks may be summed in the network",
    )
    heads = ("algorithm", "down", "up", "client state", "server state", "memory per client", "summable")
    for head in heads:
        table.add_column(head, no_wrap=head == "algorithm")
    for c in cards:
        table.add_row(
            c.label,
            f"{c.vectors_down}: {' '.join(c.down)}",
            f"{c.vectors_up}: {' '.join(c.up)}",
            " ".join(c.client_state) or "-",
            " ".join(c.server_state),
            " ".join(c.server_memory) or "-",
            "yes" if c.summable else "no",
        )
    out.print(table)
