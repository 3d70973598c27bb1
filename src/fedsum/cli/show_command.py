"""fedsum show FOLDER"""

from ..runs import Run, open_runs, planned_names
from .arguments import PackedOrFolder
from .console import Json, print_json
from .run_tables import print_run, print_runs, print_warnings, runs_json


def show(folder: PackedOrFolder, as_json: Json = False) -> None:
    """Show the state and settings of a run, or a table of all runs of a sweep."""
    runs = open_runs(folder).runs()
    if list(runs) == ["."] and not as_json:
        print_run(runs["."])
        return
    planned = planned_names(folder)
    runs = {name: Run(folder / name) for name in planned} | runs  # in the order of the sweep, as `fedsum run` has them
    if as_json:
        print_warnings(runs)
        print_json(runs_json(folder, runs, configs=True))
    else:
        print_runs(folder, runs)
