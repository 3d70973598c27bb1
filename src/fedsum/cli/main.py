"""The command `fedsum`: its subcommands and exit codes."""

import sys
from typing import Annotated

import click
import typer

from ..base.checks import InputError
from ..version import __version__
from .compare_command import compare
from .console import err, out
from .delays_command import delays
from .demo_command import demo
from .fill_command import fill
from .flower_backup_command import flower_backup
from .flower_certs_command import flower_certs
from .flower_evict_command import flower_evict
from .flower_init_command import flower_init
from .flower_readmit_command import flower_readmit
from .flower_restore_command import flower_restore
from .flower_settings_command import flower_settings
from .flower_status_command import flower_status
from .grid_command import grid
from .list_command import list_algorithms
from .pack_command import pack
from .report_command import report
from .reproduce_command import reproduce
from .resume_command import resume
from .run_command import run
from .running import INTERRUPTED
from .settings_command import settings
from .show_command import show
from .trace_convert_command import trace_convert
from .tune_command import tune

app = typer.Typer(
    no_args_is_help=True,
    suggest_commands=False,  # click suggests the nearest command already
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, resume, show, compare, grid, tune, settings, reproduce, demo, delays, report, pack, fill):
    app.command()(command)
app.command("list")(list_algorithms)
trace = typer.Typer(no_args_is_help=True, suggest_commands=False, help="Recorded availability of clients.")
trace.command("convert")(trace_convert)
app.add_typer(trace, name="trace")
flower = typer.Typer(
    no_args_is_help=True, suggest_commands=False, help="Deploy on Flower: an app, keys, and operators' tools."
)
flower.command("init")(flower_init)
flower.command("certs")(flower_certs)
flower.command("settings")(flower_settings)
flower.command("status")(flower_status)
flower.command("evict")(flower_evict)
flower.command("readmit")(flower_readmit)
flower.command("backup")(flower_backup)
flower.command("restore")(flower_restore)
app.add_typer(flower, name="flower")


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"fedsum {__version__}", highlight=False)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def fedsum(version: Version = False) -> None:
    """Federated learning when clients come and go."""


def main() -> None:
    """Entry point. Invalid input gives one line on standard error and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except InputError as error:
        code = _print_error(str(error))
    except click.exceptions.NoArgsIsHelpError:  # the help was printed
        code = 0
    except click.UsageError as error:
        code = _print_error(error.format_message())
    except (OSError, MemoryError, OverflowError) as error:
        code = _print_error(str(error) or type(error).__name__, code=1)
    if code == INTERRUPTED:
        err.print("stopped")
    sys.exit(code or 0)


def _print_error(reason: str, code: int = 2) -> int:
    line = " ".join(reason.split())
    err.print(f"error: {line}", soft_wrap=True, highlight=False, markup=False)
    return code
