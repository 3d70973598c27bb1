"""fedsum, pfl-research and Flower's simulation on the same workloads and machine, alternating round by round.

python benchmarks/peers.py [--workloads mnist cifar10 pfl-cifar10] [--rounds 10] [--out results.json]
python benchmarks/peers.py --device cuda [--pfl-processes 1 2 4 5] [--flower-actors 10] [--rounds 20 --per-turn 5]

Each framework has its own environment (made on the first call, which takes some minutes). Files, model, local steps and
memory allocator are the same; peers/README.md describes the setup. No framework evaluates. Run nothing else on the
machine.

On a GPU all frameworks use tf32. pfl and Flower run once for each number of processes that share the GPU; the fastest
is compared with fedsum. With `--site FOLDER` the peers use the current Python and a folder of packages.
"""

import argparse
import json
import platform
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from environments import FOLDER
from rivals import Rival, Setup, cores
from workload import RECIPES, Workload

FRAMEWORKS = ("fedsum", "pfl", "flower")


def contenders(arguments):
    """The frameworks, each with every number of its processes."""
    if arguments.device == "cpu":
        return [(framework, cores()) for framework in arguments.frameworks]
    processes = {"fedsum": [1], "pfl": arguments.pfl_processes, "flower": arguments.flower_actors}
    return [(framework, number) for framework in arguments.frameworks for number in processes[framework]]


def print_end(log):
    """The last lines that the harnesses wrote to stderr."""
    print(*Path(log.name).read_text(errors="replace").splitlines()[-12:], sep="\n", flush=True)


def started(stack, contender, path, setup, log):
    """The running harness; None on a GPU if it fails, because the other frameworks are still worth their time."""
    framework, processes = contender
    try:
        return stack.enter_context(Rival(framework, path, setup=setup, processes=processes, log=log))
    except RuntimeError as error:
        if setup.device == "cpu":
            raise
        print(f"{framework} with {processes} processes failed: {error}", flush=True)
        print_end(log)
        return None


def compare(name, arguments, setup, folder, log):
    """By contender: its timed rounds, and its model's loss before and after training."""
    path = folder / f"{name}.npz"
    Workload.drawn(name).write(path)
    turns = [arguments.per_turn] * (arguments.rounds // arguments.per_turn)
    with ExitStack() as stack:
        rivals = {each: started(stack, each, path, setup, log) for each in contenders(arguments)}
        rivals = {contender: rival for contender, rival in rivals.items() if rival}
        rows = {contender: [] for contender in rivals}
        for rounds in track(turns, description=name, transient=True):
            for contender, rival in rivals.items():
                rows[contender] += rival.run(rounds)
        return rows, {contender: rival.finish() for contender, rival in rivals.items()}


def refuse_other_work(framework, timed, recipe):
    for row in timed:
        if (row["clients"], row["steps"]) != (recipe.cohort, recipe.cohort * recipe.steps):
            raise RuntimeError(f"{framework} trained other clients or steps than the workload asks for: {row}")


def results_of(name, rows, verdicts):
    """One result per contender; `best` marks each framework's fastest number of processes."""
    recipe, results = RECIPES[name], []
    for (framework, processes), timed in rows.items():
        refuse_other_work(framework, timed, recipe)
        results.append(
            {
                "workload": recipe.title,
                "framework": framework,
                "processes": processes,
                "seconds": median(row["seconds"] for row in timed),
                "all_seconds": [row["seconds"] for row in timed],
                **{key: verdicts[framework, processes][key] for key in ("loss_before", "loss_after")},
            }
        )
    for result in results:
        same = (other["seconds"] for other in results if other["framework"] == result["framework"])
        result["best"] = result["seconds"] == min(same)
    return results


def table_of(results, title, digits):
    table = Table(title=title)
    for head in ("workload", "framework", "processes", "seconds", "fedsum is faster", "loss before", "after"):
        table.add_column(head, justify="left" if head in ("workload", "framework") else "right")
    ours = {row["workload"]: row["seconds"] for row in results if row["framework"] == "fedsum"}
    for row in results:
        factor = row["seconds"] / ours[row["workload"]] if row["workload"] in ours else None
        table.add_row(
            row["workload"],
            row["framework"],
            str(row["processes"]),
            f"{row['seconds']:.{digits}f}",
            "" if factor is None else f"{factor:.2f}x{'' if row['best'] else ' (not its best)'}",
            f"{row['loss_before']:.2f}",
            f"{row['loss_after']:.2f}",
        )
    return table


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", default=list(RECIPES), choices=RECIPES)
    parser.add_argument("--frameworks", nargs="+", default=list(FRAMEWORKS), choices=FRAMEWORKS)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--per-turn", type=int, default=1, help="rounds before the next framework has its turn")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--pfl-processes", nargs="+", type=int, default=[1, 2, 4, 5], help="that share the GPU")
    parser.add_argument("--flower-actors", nargs="+", type=int, default=[10], help="that share the GPU")
    parser.add_argument("--envs", type=Path, default=FOLDER, help=f"the environments of the peers ({FOLDER})")
    parser.add_argument("--site", type=Path, help="folder of packages per peer, used instead of environments")
    parser.add_argument(
        "--open-network", action="store_true", help="start peers without a network namespace if need be"
    )
    parser.add_argument("--start-limit", type=float, default=600.0, help="seconds for the start of each peer")
    parser.add_argument("--out", help="write the numbers here as JSON")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        sys.exit("peers.py: --device cuda: torch finds no GPU on this machine")
    if arguments.rounds % arguments.per_turn:
        sys.exit(f"peers.py: --rounds {arguments.rounds} is not a multiple of --per-turn {arguments.per_turn}")
    missing = [name for name in arguments.frameworks if arguments.site and not (arguments.site / name).is_dir()]
    if [name for name in missing if name != "fedsum"]:
        sys.exit(f"peers.py: {arguments.site} has no folder {missing[-1]!r}; peers/README.md says how it is made")
    return arguments


def main():
    arguments = parsed()
    setup = Setup(arguments.device, arguments.envs, arguments.site, arguments.open_network, arguments.start_limit)
    cuda, results = arguments.device == "cuda", []
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "a") as log:
        for name in arguments.workloads:
            try:
                results += results_of(name, *compare(name, arguments, setup, Path(folder), log))
            except BaseException:
                print_end(log)
                raise
            if arguments.out:  # after each workload, because a later one may run out of time
                Path(arguments.out).write_text(json.dumps(results, indent=1))
    where = torch.cuda.get_device_name() if cuda else f"{platform.machine()}, CPU"
    title = f"Seconds per round, median of {arguments.rounds} alternating, {where}"
    Console(width=120).print(table_of(results, title, 4 if cuda else 2))


if __name__ == "__main__":
    main()
