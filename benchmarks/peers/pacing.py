"""Control of a harness: after its warm-up it prints {"ready": true}, then runs N rounds for every line "go N"."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def arguments(doc: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", type=Path, help="an .npz from workload.py")
    parser.add_argument("--warmup", type=int, default=2, help="rounds before the ready line")
    parser.add_argument("--rounds", type=int, help="timed rounds, run at once; stdin is then not read")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    return parser


class Pacer:
    """Starts rounds on request and times each round."""

    def __init__(self, warmup: int, rounds: int | None = None) -> None:
        self.left, self.driven, self.done, self.warmup = rounds or 0, rounds is None, 0, warmup
        # The frameworks print too, so stdout is reserved for the JSON lines and everything else goes to stderr.
        self.out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **facts: Any) -> None:
        print(json.dumps(facts), file=self.out, flush=True)

    def wait(self) -> bool:
        """Blocks until a round may start. Returns False if no more rounds are requested."""
        if self.done < self.warmup:
            return True
        if self.done == self.warmup:
            self.say(ready=True)
        while self.left == 0:
            if not self.driven or not (line := sys.stdin.readline()):
                return False
            self.left = int(line.removeprefix("go"))
        self.left -= 1
        return True

    def start(self) -> None:
        self.started = time.perf_counter()

    def stop(self, device: str = "cpu") -> float:
        """Seconds since the start. A GPU first finishes its work."""
        if device == "cuda":
            import torch

            torch.cuda.synchronize()
        return time.perf_counter() - self.started

    def report(self, seconds: float, **facts: Any) -> None:
        """Reports the end of a round, except for warm-up rounds."""
        self.done += 1
        if self.done > self.warmup:
            self.say(round=self.done - self.warmup, seconds=seconds, **facts)
