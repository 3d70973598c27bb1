"""A client that fails as a file of faults prescribes, once per fault."""

import json
import os
import resource
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import torch
from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from flwr.supernode.runtime import run_clientapp

from fedsum.flower import client_app, clientapp
from fedsum.flower.transport.wire import to_order

from .task import task

# Lines of an exception: one that the server reads and cuts, and 50 MB that are too large for it.
TEXTS = {"text": 20_000, "flood": 2_000_000}


class Faulty(ClientApp):
    def __init__(self):
        super().__init__()
        self.sound = client_app(lambda i, n: task(n))

    def __call__(self, message, context):
        if "step_id" not in message.content:
            return self.sound(message, context)
        step_id = to_order(message.content).step_id
        state = Path(context.node_config["state"])
        folder, away = (state / step_id.job / f"client-{step_id.client}{end}" for end in ("", ".away"))
        fault = due(state, step_id)
        if fault == "delete":
            for name in ("merged", "pending"):
                (folder / f"{name}.safetensors").unlink(missing_ok=True)
        if fault == "flip":
            for path in folder.glob("*.s*"):
                content = path.read_bytes()
                path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        if fault == "disk-returns":
            folder.rename(folder.with_suffix(".replaced"))
            away.rename(folder)
        if fault == "clock":
            clientapp.time = SimpleNamespace(time=lambda: time.time() + 86_400)
        if fault in TEXTS:
            raise RuntimeError("round 9: all is well \x1b[2J\n" * TEXTS[fault])
        if fault == "full":
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            before = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
            try:
                return self.sound(message, context)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
        reply = self.sound(message, context)
        if fault == "raise":
            raise RuntimeError("raised after computing")
        if fault == "disk-vanishes":
            folder.rename(away)
            raise RuntimeError("the disk vanished")
        if fault == "kill-before":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "kill-after":
            run_clientapp.push_task_output = lambda **_: os.kill(os.getpid(), signal.SIGKILL)
        if fault and fault.startswith("delay"):
            time.sleep(float(fault.split("=")[1]))
        if fault in ("chunk", "bomb"):
            record, made = reply.content["vectors"], Malformed if fault == "chunk" else Repeated
            # Not ArrayRecord({...}), which copies its arrays: the copies would be sound.
            for name, array in list(record.items()):
                record[name] = made(array.dtype, array.shape, array.stype, array.data)
        if fault in ("nan", "huge", "shape", "nonsense"):
            reply.content["vectors"] = spoiled(reply.content["vectors"], fault)
        return reply


class Malformed(Array):
    """An array whose list of chunks names a chunk that does not exist."""

    chunks = (7,)

    def deflate(self):
        head, _, body = super().deflate().partition(b"\0")
        body = json.dumps({**json.loads(body), "arraychunk_ids": self.chunks}).encode()
        kind, children, _ = head.decode().split(" ")
        return f"{kind} {children} {len(body)}".encode() + b"\0" + body


class Repeated(Malformed):
    """An array of 600 kB that decodes to 200,000 times its data: a gigabyte for a chunk of 5 kB."""

    chunks = (0,) * 200_000


Malformed.__qualname__ = Repeated.__qualname__ = "Array"  # Flower stores the name


def due(state, step_id):
    """The fault of this client in this round, if it has not happened yet."""
    path = state / "faults.json"
    for fault in json.loads(path.read_text()) if path.exists() else []:
        happened = state / f"happened-{step_id.client}-{step_id.t}"
        if (fault["client"], fault["t"]) == (step_id.client, step_id.t) and not happened.exists():
            happened.touch()
            return fault["kind"]
    return None


def spoiled(record, fault):
    if fault == "nonsense":
        return ArrayRecord({"delta": Array("float32", (650,), "numpy.ndarray", b"not an array")})
    values = {name: torch.from_numpy(array.numpy()) for name, array in record.items()}
    made = {
        "nan": lambda v: v * float("nan"),
        "huge": lambda v: v * 1e6,
        "shape": lambda v: v[:-1],
    }[fault]
    return ArrayRecord({name: Array(made(value).numpy()) for name, value in values.items()})


app = Faulty()
