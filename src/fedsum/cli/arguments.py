"""Command line options that several commands take, such as --jobs. The settings of a run are in training/options.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path, typer.Argument(metavar="FILE", help="A TOML file with settings; lists under \\[sweep] make a sweep.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as in schedule.size=10; repeatable."),
]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Folder for the runs, or a packed file with the runs; default runs/NAME-OF-FILE."),
]
RunsFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of a run or a sweep.")]
DeploymentFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The run folder of a deployment, on the server's machine.")
]
PackedOrFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A run, a folder with runs at any depth, or a packed file.")
]
Jobs = Annotated[
    int,
    typer.Option(help="Sweep: parallel runs on this machine. Process j uses GPU j modulo the number of GPUs."),
]
Ray = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Sweep: address of a Ray cluster, or 'auto'.")
]
Gpus = Annotated[float, typer.Option(help="Sweep on Ray: GPUs per run; may be a fraction.")]
Keep = Annotated[bool, typer.Option("--keep", help="Sweep: keep the checkpoints of finished runs.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard files.")]

Better = Annotated[
    str | None,
    typer.Option(help="'higher' or 'lower': which value of the metric is better, if the runs do not record it."),
]
Offset = Annotated[
    str | None, typer.Option(help="Intervals: the time at which round 0 starts; default: the earliest start.")
]
Cover = Annotated[
    str | None,
    typer.Option(
        help="Intervals: a client is active in a round if it is available for the 'whole' round (default) or for 'any' "
        "part of it."
    ),
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
    """runs with fewer rounds continue to the new number"""
