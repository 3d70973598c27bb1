"""Command line options that several commands take, such as --jobs. The settings of a run are in training/options.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A TOML file with settings; lists under \\[sweep] make a sweep.")
]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder for the runs, or a packed file with the runs; default runs/NAME-OF-FILE."),
]
RunsFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or a sweep.")]
PackedOrFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A run, a folder with runs at any depth, or a packed file.")
]
Jobs = Annotated[int, typer.Option(help="Sweep: parallel runs on this machine; process j uses GPU j.")]
Ray = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Sweep: address of a Ray cluster, or 'auto'.")
]
Gpus = Annotated[float, typer.Option(help="Sweep on Ray: GPUs per run; may be a fraction.")]
Keep = Annotated[bool, typer.Option("--keep", help="Sweep: keep the checkpoints of finished runs.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")]

Offset = Annotated[str | None, typer.Option(help="Intervals: the time at which round 0 starts; default: the first.")]
Cover = Annotated[
    str | None,
    typer.Option(help="Intervals: in a round are clients available for the 'whole' of it, or 'any' part."),
]


@dataclass(frozen=True)
class ExecutionOptions:
    """Options of a command that do not change results: workers, files and output format."""

    jobs: int = 1
    ray: str | None = None
    gpus: float = 0.0
    keep_checkpoints: bool = False
    tensorboard: bool = False
    as_json: bool = False
    extend: bool = False
    """runs with fewer rounds go on to the new number"""
