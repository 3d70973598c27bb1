"""Command line options that several commands take, such as --jobs. The settings of a run are in training/options.py."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file: settings, and lists under \\[sweep].")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; repeatable.")]
Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where the runs go, or a packed file that has them; default runs/NAME-OF-FILE."),
]
RunsFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a run or a sweep.")]
PackedOrFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A run, a folder with runs at any depth, or a packed file.")
]
Jobs = Annotated[int, typer.Option(help="Sweep: runs at a time on this machine; process j uses GPU j.")]
Ray = Annotated[str | None, typer.Option("--ray", metavar="ADDRESS", help="Sweep: on this Ray cluster, or 'auto'.")]
Gpus = Annotated[float, typer.Option(help="Sweep on Ray: GPUs per run, perhaps a fraction.")]
Keep = Annotated[bool, typer.Option("--keep", help="Sweep: keep the checkpoints of finished runs.")]
Board = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard's files too.")]


@dataclass(frozen=True)
class HowToRun:
    """Where the runs of a file are computed, and what is kept and printed."""

    jobs: int = 1
    ray: str | None = None
    gpus: float = 0.0
    keep_checkpoints: bool = False
    tensorboard: bool = False
    as_json: bool = False
