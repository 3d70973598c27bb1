"""fedsum show FOLDER"""

from ..runs import Run, not_begun, open_runs
from .arguments import PackedOrFolder
from .console import Json, print_json
from .run_tables import print_run, print_runs, print_warnings, runs_json


def show(folder: PackedOrFolder, as_json: Json = False) -> None:
    """Show the state and settings of a run, or a table of all runs of a sweep."""
    runs = open_runs(folder).runs()
    if list(runs) == ["."] and not as_json:
        print_run(runs["."])
        return
    runs |= {name: Run(folder / name) for name in not_begun(folder)}
    if as_json:
        print_warnings(runs)
        print_json(runs_json(folder, runs, configs=True))
    else:
        print_runs(folder, runs)
