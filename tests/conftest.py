import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    # pytest-xdist already uses every core; tiny vectors gain nothing from more threads.
    torch.set_num_threads(1)
