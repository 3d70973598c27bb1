"""Client states outside a CUDA device, without CUDA: streams and pinned memory have stand-ins."""

import contextlib
import types

import numpy as np
import pytest
import torch

from fedsum.engine import StateBank
from fedsum.engine.bank import blocks, offload, state_bank


class Stream:
    def wait_stream(self, other):
        pass

    def record_event(self):
        return types.SimpleNamespace(synchronize=lambda: None)


@pytest.fixture
def no_cuda(monkeypatch):
    empty, empty_like = torch.empty, torch.empty_like
    monkeypatch.setattr(torch, "empty", lambda *sizes, pin_memory=False, **options: empty(*sizes, **options))
    monkeypatch.setattr(torch, "empty_like", lambda like, pin_memory=False, **options: empty_like(like, **options))
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: Stream())
    monkeypatch.setattr(torch.cuda, "default_stream", lambda device: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    shape = lambda rows, like: {name: empty((rows, *v.shape), dtype=v.dtype) for name, v in like.items()}  # noqa: E731
    make = lambda rows, like: offload.OffloadedBlock(shape(rows, like), torch.device("cpu"))  # noqa: E731
    monkeypatch.setattr(state_bank, "make_block", make)


@pytest.mark.parametrize("free", [0.0, 1e30], ids=["full device", "free device"])
@pytest.mark.parametrize("largest", [48, 16 * 24], ids=["small blocks", "large blocks"])
def test_every_row_is_the_last_one_written(no_cuda, monkeypatch, free, largest):
    monkeypatch.setattr(blocks, "device_memory_free", lambda device: free)
    monkeypatch.setattr(state_bank, "_LARGEST", largest)
    draw = np.random.default_rng(0)
    bank, twin, ahead = StateBank({"h": torch.full((2,), 7.0), "last": torch.tensor(-1)}), {}, {"device": 0, "host": 0}

    def cohort_ids():
        return np.sort(draw.choice(40, draw.integers(0, 9), replace=False))

    upcoming = cohort_ids()
    for t in range(100):
        ids, upcoming = upcoming, cohort_ids()
        cohort = bank.gather(ids)
        assert not any(block._written[0] for block in bank._blocks)  # device memory of the cohort before is free
        for row, i in enumerate(ids.tolist()):
            h, last = twin.get(i, (torch.full((2,), 7.0), -1))
            assert torch.equal(cohort["h"][row], h)
            assert cohort["last"][row] == last
            twin[i] = h + t, t
        if t % 7:  # sometimes the next cohort is not announced
            bank.expect(upcoming)
        ahead["device"] += sum(len(block._fetched[0]) for block in bank._blocks)
        ahead["host"] += sum(len(block._staged[0]) for block in bank._blocks)
        bank.scatter(ids, {"h": cohort["h"] + t, "last": torch.full_like(cohort["last"], t)})
    assert all(torch.equal(bank[i]["h"], h) for i, (h, _) in twin.items())
    assert (ahead["device"] > 100, ahead["host"] > 100) == (free > 0, free == 0)


def test_free_device_memory_is_within_the_limit_of_the_process(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 140))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 2)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 0.1)
    assert blocks.device_memory_free(torch.device("cuda")) == pytest.approx(12)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    assert blocks.device_memory_free(torch.device("cuda")) == 100
