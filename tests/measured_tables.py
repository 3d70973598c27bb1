"""Tables of measurements in the documentation, from the JSON files that benchmarks write to benchmarks/results/.

A page has `<!-- measured: NAME -->` before a table and `<!-- end of NAME -->` after it.

    python tests/measured_tables.py           # names the pages that are out of date
    python tests/measured_tables.py --write   # writes their tables
"""

import json
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
PAGES = tuple(
    ROOT / "docs" / name for name in ("engines.md", "performance.md", "runs.md", "theory.md", "deploy/measurements.md")
)
_NETWORKS = {"mnist": "MNIST CNN", "svhn": "SVHN CNN", "cifar10": "CIFAR-10 CNN"}
_MARKED = re.compile(
    r"(?P<begin><!-- measured: (?P<name>[\w-]+) -->\n).*?(?P<end>\n<!-- end of (?P=name) -->)", re.DOTALL
)


def read(name):
    return json.loads((RESULTS / name).read_text())


def table(heads, rows):
    return "".join(f"| {' | '.join(map(str, row))} |\n" for row in (heads, ["---"] * len(heads), *rows))


def engine_gpu():
    heads = [
        *("network, precision", "kernels", "plain loop, ms", "fedsum, ms", "speedup"),
        *("arithmetic bound, ms", "memory bound, ms"),
    ]
    rows = [
        (
            f"{_NETWORKS[row['model']]}, {row['precision']}",
            {"ours": "fedsum", "torch's": "torch"}[row["kernels"]],
            f"{row['plain_ms']:.0f}",
            f"{row['fedsum_ms']:.1f}",
            f"{row['ratio']:.1f}x",
            f"{row['floor_arithmetic_ms']:.1f}",
            f"{row['floor_traffic_ms']:.2f}",
        )
        for row in read("engine-h200.json")
    ]
    return table(heads, rows)


def deep():
    names = {"resnet": "ResNet-18, 10 clients, K = 10, batch 32", "bert": "BERT-base, 2 clients, K = 3, 4 x 64 tokens"}
    by_row = {}
    for result in read("deep-h200.json")["results"]:
        by_row.setdefault(result["row"], {})[result["engine"]] = result
    rows = [
        (
            f"{names[row.partition('-')[0]]}, {row.partition('-')[2]}",
            f"{engines['plain']['ms']:.0f}",
            f"{engines['streams']['ms']:.0f}",
            f"{engines['plain']['ms'] / engines['streams']['ms']:.1f}x",
            f"{engines['streams']['GiB']:.1f}",
            f"{engines['streams']['start_s']:.0f}",
        )
        for row, engines in by_row.items()
    ]
    heads = ["network, precision", "plain loop, ms", "`streams`, ms", "speedup", "memory, GiB", "start, s"]
    return table(heads, rows)


def engine_cpu():
    rows = [
        (_NETWORKS[row["model"]], f"{row['plain_ms']:.0f}", f"{row['fedsum_ms']:.0f}", f"{row['ratio']:.1f}x")
        for row in read("engine-cpu.json")
    ]
    return table(["network", "plain loop, ms", "fedsum, ms", "speedup"], rows)


def cpu_step():
    keys = ("plain", "torch_layers", "fedsum")
    rows = [
        (row["workload"], *(f"{row[key]:.1f}" for key in keys), f"{row['plain'] / row['fedsum']:.2f}x")
        for row in read("cpu-step.json")
    ]
    return table(["ms per local step", "plain PyTorch", "torch's layers", "fedsum's layers", "speedup"], rows)


def peers():
    seconds = {(row["workload"], row["framework"]): row["seconds"] for row in read("peers-cpu.json")}
    rows = []
    for workload in dict.fromkeys(workload for workload, _ in seconds):
        ours = seconds[workload, "fedsum"]
        others = (seconds[workload, name] for name in ("pfl", "flower"))
        rows.append((workload, f"{ours:.2f}", *(f"{other:.2f} ({other / ours:.2f}x)" for other in others)))
    return table(["seconds per round", "fedsum", "pfl 0.6.0", "Flower 1.41"], rows)


def scale():
    columns = [{row["N"]: row["ms"] for row in read(f"scale-{device}.json")} for device in ("cpu", "h200")]
    first = min(columns[0])
    rows = [
        (
            f"{n:,}",
            *(cell for ms in columns for cell in (f"{ms[n]:.3g}", f"{ms[n] / ms[first]:.2f}x")),
        )
        for n in columns[0]
    ]
    relative = f"relative to N = {first:,}"
    return table(["N", "CPU, ms", relative, "H200, ms", relative], rows)


def seen():
    rows = [(f"{row['N']:,}", f"{row['seen']:,}", f"{row['gained'] / 1e6:.0f}") for row in read("scale-cpu.json")]
    return table(["N", "clients seen", "memory gained, MB"], rows)


def bank():
    names = {
        "device": "on the device",
        "host, overlapped": "in host memory, prefetched",
        "host, waiting": "in host memory, fetched on demand",
    }
    return table(
        ["client states", "ms per round"], [(names[key], f"{ms:.1f}") for key, ms in read("bank-h200.json").items()]
    )


def rounding():
    rows = []
    for device, file, clients, torch_name in (
        ("CPU, kernels interpreted", "rounding-cpu.json", "20, one batch each", "torch, factors rounded to 10 bits"),
        ("H200", "rounding-h200.json", "100, ten batches of 128 each", "torch, tf32"),
    ):
        errors = read(file)["errors"]
        for key, name in (("ours", "fedsum"), ("torch's", torch_name)):
            rows.append((device, clients, name, f"{statistics.median(errors[key]):.2%}", f"{max(errors[key]):.1%}"))
    return table(["device", "clients", "kernels", "median error", "largest error"], rows)


def soak():
    lines = (RESULTS / "soak.txt").read_text()
    measured = json.loads(lines[lines.rindex("\n{\n") :])
    faults = measured["faults"].values()
    (longest,) = (value for name, value in measured.items() if name.startswith("longest round"))
    (wait,) = (value for name, value in measured.items() if name.startswith("longest wait"))
    without = measured["without faults, 5 seeds"]
    rows = [
        ("rounds, minutes", f"{measured['rounds']}, {measured['minutes']}"),
        ("faults", f"{sum(faults)} of {sum(map(bool, faults))} kinds"),
        ("server apps restarted", measured["server apps started again"]),
        ("new epochs", measured["epochs begun anew"]),
        ("mean number of clients merged per round, of 5", measured["clients merged per round, mean"]),
        ("rounds with a SuperNode that was one message behind", lines.count("; replied after a second message: ")),
        (
            r"largest \|\|y - sum h_i\|\| / \|\|y\|\|",
            f"{measured['largest ||y - sum h|| / ||y|| after any round']:.1e}",
        ),
        ("test accuracy", f"{measured['test accuracy']:.3f}"),
        ("test accuracy without faults, five seeds", f"{min(without):.3f} to {max(without):.3f}"),
        ("longest round by the server's clock, s (deadline 40, grace 20)", longest),
        ("longest wait between two log lines, s", wait),
        ("load average at the end, over 15 minutes", measured["load average"][-1]),
    ]
    return table(["", ""], rows)


def overhead():
    measured = read("overhead.json")
    names = {"fedsum": "fedsum's FedAvg", "flower": "Flower's FedAvg on the same SuperNodes"}
    rows = [(name, f"{measured[key]['median_s']:.1f}") for key, name in names.items()]
    return table(["", "seconds per round, median"], rows)


def nodes():
    measured = read("flower_nodes.json")
    faults = sum(measured["faults"].values())
    assert measured["faults of clients that were not killed"] == 0
    rows = [
        (
            "seconds per round, median",
            measured["seconds per round, median"],
            measured["seconds per round after the kill, median"],
        ),
        (
            "clients merged per round, mean",
            f"{measured['clients merged per round']:.1f}",
            f"{measured['clients merged per round after the kill']:.1f}",
        ),
        ("faults, all of them of killed SuperNodes", 0, faults),
    ]
    return table(["", "before the kill", "after the kill"], rows)


def link():
    measured = read("flower_link.json")
    fits, refused = measured["fits"], measured["does not fit"]
    assert (fits["rounds merged"], refused["rounds merged"]) == (1, 0)
    needed = re.search(r"take (\d+ s) at", refused["log"][0])[1]
    rows = [
        (f"{fits['deadline']:.0f} s", f"merged after {fits['seconds per round'][0]:.0f} s"),
        (
            f"{refused['deadline']:.0f} s",
            f"refused before the first round: the messages alone take {needed}",
        ),
    ]
    return table(["deadline", "result"], rows)


def checkpoints():
    measured = read("checkpoint.json")
    names = {"no checkpoints": "none", "background": "in the background", "waiting": "training waits"}
    rows = [
        (
            names[key],
            measured[key]["checkpoints"],
            f"{measured[key]['longest_pause']:.2g}",
            f"{measured[key]['paused']:.2g}",
            f"{measured[key]['seconds']:.1f}",
        )
        for key in names
    ]
    return table(["checkpoints", "written", "longest pause, s", "all pauses, s", "training, s"], rows)


def rates():
    heads = {
        "best_of_grid": "best of a grid of eight rates",
        "tune": "`fedsum tune`",
        "delays": "`fedsum delays --task`",
        "theorem_1": "Theorem 1",
    }
    rows = [
        (row["algorithm"], *(f"{row[key]['test_accuracy']:.1%} ({row[key]['eta_l']:.2g})" for key in heads))
        for row in read("rates.json")["rows"]
    ]
    return table(["algorithm", *heads.values()], rows)


def stability():
    measured = read("stability.json")
    names = {"all": "full", **{f"{kind}, 20 of 100": kind for kind in ("uniform", "cyclic", "reshuffled")}}
    patterns = list(dict.fromkeys(row["pattern"] for row in measured))
    rows = []
    for algorithm in dict.fromkeys(row["algorithm"] for row in measured):
        of = {row["pattern"]: row for row in measured if row["algorithm"] == algorithm}
        for label, limit, period in (
            (algorithm, "limit", "period"),
            (f"{algorithm}, predicted", "predicted", "predicted_period"),
        ):
            if any(row[limit] is not None for row in of.values()):
                rows.append((label, *(_with_period(of[pattern], limit, period) for pattern in patterns)))
    return table(["", *(names.get(pattern, pattern) for pattern in patterns)], rows)


def edge():
    measured = read("edge.json")
    rates = sorted({row["rate"] for row in measured})
    cells = {(row["pattern"], row["rate"]): _sharpness(row) for row in measured}
    rows = [
        (
            {"all clients": "full"}.get(pattern, pattern.partition(",")[0]),
            f"{limit:.2f}" if limit is not None else "",
            *(cells[pattern, rate] for rate in rates),
        )
        for pattern, limit in {row["pattern"]: row["limit"] for row in measured}.items()
    ]
    return table(["participation", "predicted", *(f"measured, eta_l = {rate:g}" for rate in rates)], rows)


def _sharpness(row):
    """Times the step size, as in benchmarks/edge.py: the mean over the last third of the rounds."""
    last = row["edge"][-len(row["edge"]) // 3 :]
    return "diverged" if row["diverged"] is not None else f"{statistics.fmean(last):.2f}"


def _with_period(row, limit, period):
    if row[limit] is None:
        return ""
    return f"{row[limit]:.3g}" + (f" ({row[period]:.2g})" if row[period] is not None else "")


TABLES = {
    "bank": bank,
    "checkpoints": checkpoints,
    "cpu-step": cpu_step,
    "deep": deep,
    "edge": edge,
    "engine-cpu": engine_cpu,
    "engine-gpu": engine_gpu,
    "link": link,
    "nodes": nodes,
    "overhead": overhead,
    "peers": peers,
    "rates": rates,
    "rounding": rounding,
    "soak": soak,
    "scale": scale,
    "seen": seen,
    "stability": stability,
}


def filled(text):
    """A page's text with its tables written anew."""
    return _MARKED.sub(lambda mark: f"{mark['begin']}\n{TABLES[mark['name']]()}{mark['end']}", text)


def names_in(text):
    return [mark["name"] for mark in _MARKED.finditer(text)]


if __name__ == "__main__":
    for page in PAGES:
        if "--write" in sys.argv:
            page.write_text(filled(page.read_text()))
        elif page.read_text() != filled(page.read_text()):
            print(f"{page} is out of date")
