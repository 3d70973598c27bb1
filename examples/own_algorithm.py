"""An algorithm of your own, and a sweep over its option.

    python examples/own_algorithm.py                                        # checks the algorithm
    fedsum run examples/own_algorithm.toml && fedsum show runs/own_algorithm
    fedsum compare runs/own_algorithm --by error

The class is FedAvg with server momentum: v <- beta v + mean G_i, x -= eta_g eta_l K v.
"""

from dataclasses import dataclass

import torch

import fedsum


@dataclass(frozen=True)
class FedAvgM(fedsum.Algorithm):
    """FedAvg with momentum on the server."""

    beta: float = 0.5

    def init_server(self, x0, first):
        return {"x": x0, "v": torch.zeros_like(x0)}

    def report(self, client, down, plan, G, now):
        return {"G": G}, client

    def merge(self, server, total, m, now):
        if m == 0:
            return server
        v = self.beta * server["v"] + total["G"] / m
        return {"x": server["x"] - now.stride * v, "v": v}


if __name__ == "__main__":
    fedsum.check(FedAvgM())  # raises an error that names the function which breaks a rule
    print("FedAvgM passes all checks")
