"""fedsum show FOLDER"""

from ..runs import Run, not_begun, open_runs
from .arguments import PackedOrFolder
from .console import Json, print_json
from .run_tables import print_run, print_runs, summary


def show(folder: PackedOrFolder, as_json: Json = False) -> None:
    """Show the state and settings of a run, or a table of all runs of a sweep."""
    runs = open_runs(folder).runs()
    if list(runs) == ["."] and not as_json:
        print_run(runs["."])
        return
    runs |= {name: Run(folder / name) for name in not_begun(folder)}
    if as_json:
        configs = {name: {"config": run.config} if run.config else {} for name, run in runs.items()}
        print_json({name: summary(run) | configs[name] for name, run in runs.items()})
    else:
        print_runs(folder, runs)
