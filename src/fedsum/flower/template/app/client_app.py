"""The ClientApp. A SuperNode runs it once per order."""

from fedsum.flower import client_app

from .task import client_task

app = client_app(client_task)
