"""fedsum flower evict FOLDER CLIENT"""

from .arguments import RunsFolder
from .flower_requests import Client, Wait, request_and_wait


def flower_evict(folder: RunsFolder, client: Client, wait: Wait = 0.0) -> None:
    """Exclude a client: its contributions are subtracted, or an epoch begins. Applied between two rounds."""
    request_and_wait(folder, "evict", client, wait)
