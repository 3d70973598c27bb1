import os
import signal
import sys

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported; our kernels then run on a CPU

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background processes with SIGINT ignored, but some tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    # pytest-xdist already uses every core; tiny vectors gain nothing from more threads.
    torch.set_num_threads(1)


@pytest.fixture
def fedsum(monkeypatch, tmp_path, capsys):
    """Runs the command in an empty folder; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        from fedsum import cli
        from fedsum.cli import console as consoles

        monkeypatch.setattr(sys, "argv", ["fedsum", *map(str, arguments)])
        for console in (consoles.out, consoles.err):  # under capsys, consoles must look up their stream again
            monkeypatch.setattr(console, "_file", None)
            monkeypatch.setattr(console, "_width", 120)
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return run
