"""The ServerApp: the round loop. The SuperLink runs it; its settings are in pyproject.toml.

Arguments in Python override the settings, for example:

    app = server_app(server_task, eta_l=lambda t: 0.05 / (1 + t / 50), schedule=fedsum.Markov(3, on=0.9, off=0.9))
"""

from fedsum.flower import server_app

from .task import server_task

app = server_app(server_task)
