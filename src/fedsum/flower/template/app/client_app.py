"""What a SuperNode runs, once for every order."""

from fedsum.flower import client_app

from .task import client_task

app = client_app(client_task)
