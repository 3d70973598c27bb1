"""What the SuperLink runs: the round loop. Its settings are in pyproject.toml.

Python says more than a configuration file can, where that is needed:

    app = server_app(server_task, eta_l=lambda t: 0.05 / (1 + t / 50), schedule=fedsum.Markov(3, on=0.9, off=0.9))
"""

from fedsum.flower import server_app

from .task import server_task

app = server_app(server_task)
