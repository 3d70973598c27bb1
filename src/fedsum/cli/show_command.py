"""fedsum show FOLDER"""

from ..base.checks import InputError
from ..runs import CONFIG, Run, find_runs, not_begun
from .arguments import RunsFolder
from .console import Json, print_json
from .run_tables import print_run, print_runs, summary


def show(folder: RunsFolder, as_json: Json = False) -> None:
    """How a run stands, with its settings; or all runs of a sweep in a table."""
    paths = find_runs(folder)
    if not paths:
        raise InputError("folder", str(folder), f"a run's folder, or one that holds runs; no {CONFIG} is below it")
    if paths == [folder] and not as_json:
        print_run(Run.read(folder))
        return
    runs = {str(path.relative_to(folder)): Run.read(path) for path in paths}
    runs |= {name: Run(folder / name) for name in not_begun(folder)}
    if as_json:
        configs = {name: {"config": run.config} if run.config else {} for name, run in runs.items()}
        print_json({name: summary(run) | configs[name] for name, run in runs.items()})
    else:
        print_runs(folder, runs)
