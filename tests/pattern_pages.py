"""docs/patterns.md and the pictures in docs/patterns/: every participation pattern, measured.

python tests/pattern_pages.py   # writes the page and the pictures
"""

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from algorithm_pages import wrapped
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo

import fedsum
from fedsum.figures import COLOURS
from fedsum.report import measure

DOCS = Path(__file__).parent.parent / "docs"
PAGE, FOLDER = DOCS / "patterns.md", DOCS / "patterns"
N, SHOWN, MEASURED, SEED = 40, 120, 2000, 0
_INDEPENDENT_DELAYS = "An unlucky client waits several times the mean."


@dataclass(frozen=True)
class Entry:
    """A section of the page: `code` defines `schedule`."""

    name: str
    code: str
    meaning: str
    use: str
    delay: str
    settings: str = ""


ENTRIES = (
    Entry(
        "Uniform",
        "schedule = fedsum.Uniform(40, size=8)",
        "`size` clients are drawn per round, without replacement. The paper's P1 and Case 1.",
        "The server draws from a pool that is always online.",
        f"The mean absence is N/S rounds. {_INDEPENDENT_DELAYS}",
        'schedule = {name = "Uniform", size = 8}',
    ),
    Entry(
        "Independent",
        "schedule = fedsum.Independent(40, p=0.2)",
        "Each client is active with probability `p`, independently of other clients and rounds. The paper's P2 and "
        "Case 2. `p` is a number, one number per client, or a function of the round.",
        "Clients decide for themselves. The number of active clients varies, and a round can be empty.",
        f"The mean absence is 1/p rounds. {_INDEPENDENT_DELAYS}",
        'schedule = {name = "Independent", p = 0.2}',
    ),
    Entry(
        "Sine",
        "schedule = fedsum.Sine(40, size=8)",
        "Each client is active with probability size/n (0.3 sin(pi t/5) + 0.7) in round t. The paper's P3.",
        "The number of active clients rises and falls every ten rounds.",
        "Somewhat longer than with `Independent`: on average 0.7 `size` clients are active.",
        'schedule = {name = "Sine", size = 8}',
    ),
    Entry(
        "Cyclic",
        "schedule = fedsum.Cyclic(40, size=8)",
        "Blocks of `size` clients take turns in a fixed order. The paper's Case 3.",
        "Clients in fixed shifts, or a server that goes through a list.",
        "The smallest possible: each client returns after N/S rounds. FedSUM tolerates only "
        "[a small step](theory.md#stability-limits-of-fedsum) here.",
        'schedule = {name = "Cyclic", size = 8}',
    ),
    Entry(
        "Reshuffled",
        "schedule = fedsum.Reshuffled(40, size=8)",
        "Blocks of `size` clients in a new random order per epoch of N/S rounds. The paper's Case 4.",
        "A server that goes through a shuffled list, as data loaders do.",
        "Less than two epochs: a client can be first in one epoch and last in the next.",
        'schedule = {name = "Reshuffled", size = 8}',
    ),
    Entry(
        "Biased",
        "schedule = fedsum.Biased(40, group=4)",
        "Groups of `group` clients with probabilities that fall from `start` by `drop` per group, to `floor` at least.",
        "Some clients have a good connection and others a bad one. FedAvg is biased here.",
        "Long for the rare clients, short for the others.",
        'schedule = {name = "Biased", group = 4}',
    ),
    Entry(
        "Markov",
        "schedule = fedsum.Markov(40, on=0.9, off=0.975)",
        "An active client stays active with probability `on`, an absent one stays absent with probability `off`.",
        "Devices that are online for a while and then offline for a while.",
        "Long: a mean absence lasts 1/(1 - off) rounds.",
        'schedule = {name = "Markov", on = 0.9, off = 0.975}',
    ),
    Entry(
        "Periodic",
        "schedule = fedsum.Periodic(40, groups=4, dwell=10, size=8)",
        "Groups of clients take turns of `dwell` rounds. In each round `size` clients of the group are drawn.",
        "Regions or time zones that are online one after the other.",
        "At least the turns of the other groups, and longer for clients that were not drawn in their turn.",
        'schedule = {name = "Periodic", groups = 4, dwell = 10, size = 8}',
    ),
    Entry(
        "Spaced",
        "schedule = fedsum.Spaced(40, size=8, separation=4)",
        "As `Uniform`, but a client is not drawn again within `separation` - 1 rounds.",
        "The server spares clients, as matrix mechanisms for differential privacy require.",
        "Shorter than with `Uniform`, because clients that wait are drawn more often.",
        'schedule = {name = "Spaced", size = 8, separation = 4}',
    ),
    Entry(
        "Diurnal",
        "schedule = fedsum.Diurnal(40, peak=0.4, trough=0.02, period=24, zones=2)",
        "Each client is active with a probability that follows a cosine between `trough` and `peak`, with `period` "
        "rounds per day. `zones` time zones are spread evenly over the day.",
        "Phones that charge at night.",
        "One to two days: a client that misses its peak waits for the next.",
        'schedule = {name = "Diurnal", peak = 0.4, trough = 0.02, period = 24, zones = 2}',
    ),
    Entry(
        "Sampled",
        "nights = fedsum.Diurnal(40, peak=0.7, trough=0.05, period=24)\n"
        'schedule = fedsum.Sampled(nights, size=8, order="oldest")',
        "`size` of the clients that are available, chosen at random or by their last active round.",
        "The server chooses among devices that come and go ([details]"
        "(participation.md#choosing-among-the-available-clients)).",
        'Short with order `"oldest"`, which asks the clients that have waited longest.',
        "[schedule]\n"
        'name = "Sampled"\nsize = 8\norder = "oldest"\n'
        'availability = {name = "Diurnal", peak = 0.7, trough = 0.05, period = 24}',
    ),
    Entry(
        "Trace",
        'with open("seen.csv", "w") as file:\n'
        '    file.write("round,client\\n")\n'
        "    for t in range(240):\n"
        "        for client in fedsum.Markov(40, on=0.9, off=0.975).active(1, t):\n"
        '            file.write(f"{t},{client}\\n")\n'
        'schedule = fedsum.Trace.read("seen.csv", repeat=True)',
        "The clients that a file lists per round. Here the file is made; yours is a log.",
        "You have a record of a real federation ([traces](participation.md#traces)).",
        "Those of the record. With `repeat`, the record starts over after its last round.",
        'task = {name = "digits", clients = 40}\nschedule = {name = "Trace", path = "seen.csv", repeat = true}',
    ),
    Entry(
        "Availability",
        "clients = list(range(40)) * 9\n"
        "starts = [24 * (k // 40) + k % 40 / 3 for k in range(360)]  # hours; one interval per client and day\n"
        "ends = [start + 5.5 for start in starts]\n"
        "schedule = fedsum.Availability.from_intervals(clients, starts, ends, n=40, round_length=1, repeat=True)",
        "All clients that are available, from intervals of time. Here each client has five and a half hours per day.",
        "Your log says from when to when a device was available ([intervals]"
        "(participation.md#availability-intervals)).",
        "Those of the log.",
    ),
    Entry(
        "Asynchronous",
        "speeds = fedsum.LogUniform(0.1, 1.0)\n"
        "schedule = fedsum.Asynchronous(40, fedsum.Devices(seconds_per_step=speeds), buffer=8)",
        "A round is one server step, after the next `buffer` updates have arrived. Fast devices are active more often.",
        "The server does not wait for slow devices ([asynchronous training](time.md#asynchronous-training)).",
        "Those of the slowest device. They do not count how old the model was from which a client started.",
        "[schedule]\n"
        'name = "Asynchronous"\nbuffer = 8\n'
        'devices = {seconds_per_step = {name = "LogUniform", low = 0.1, high = 1.0}}',
    ),
    Entry(
        "Explicit",
        "sets = [{t % 40, 7 * t % 40, t * t % 40} for t in range(200)]\n"
        "schedule = fedsum.Explicit(40, sets, repeat=True)",
        "Any sequence of sets.",
        "A pattern of your own, or a constructed example.",
        "Those of your sets. A client in no set is never active, and tau_t grows without end.",
    ),
)


def schedule_of(entry, folder):
    """The schedule that an entry's code makes. The code may write files to the folder."""
    names = {"fedsum": fedsum}
    exec(entry.code.replace('"seen.csv"', repr(str(folder / "seen.csv"))), names)
    return names["schedule"]


def overview(schedules):
    """One row per pattern: active clients, activity of the rarest client, delays, the lemma's bound."""
    rows = [
        "| pattern | active: mean (least to most) | rarest client | tau_avg | tau_max | bound |\n",
        "|---|---|---|---|---|---|\n",
    ]
    for name, schedule in schedules.items():
        measured = measure(schedule, range(MEASURED), seed=SEED)
        active, counts, delays = measured.active, measured.delays.counts, measured.delays
        bound = f"{measured.tau_max_bound:.0f}" if measured.tau_max_bound is not None else "-"
        rows.append(
            f"| [{name}](#{name.lower()}) | {active.mean():.1f} ({active.min()} to {active.max()}) "
            f"| {counts.min() / MEASURED:.1%} | {delays.avg:.1f} | {delays.max} | {bound} |\n"
        )
    return "".join(rows)


def lowered(sentence):
    return sentence[0].lower() + sentence[1:]


def page(schedules):
    links = " · ".join(f"[{entry.name}](#{entry.name.lower()})" for entry in ENTRIES)
    parts = [
        "# Every participation pattern\n\n<!-- python tests/pattern_pages.py -->\n\n",
        wrapped(
            "A pattern decides which clients are active in a round, and so how old the gradients are that a server "
            "remembers. This page shows every pattern of fedsum with the same number of clients, N = 40. "
            "[Participation and delays](participation.md) has their options."
        ),
        f"\n{links}\n\n",
        wrapped(
            f"All numbers are measured over {MEASURED:,} rounds with seed {SEED}: the active clients per round, the "
            "share of rounds in which the rarest client is active, and two delays. tau_t is the longest any client has "
            "been away in round t, in rounds; tau_avg and tau_max are its mean and maximum. The last column bounds the "
            "expected tau_max, where a [lemma](theory.md#theorem-1-and-the-delay-lemmas) of the paper applies."
        ),
        f"\n{overview(schedules)}\n",
        wrapped(
            f"In the pictures each row is a client and each column one of {SHOWN} rounds; blue: active. Below is "
            "tau_t. `fedsum delays PATTERN` draws such a picture for your own numbers."
        ),
    ]
    for entry in ENTRIES:
        parts.append(
            f"\n## {entry.name}\n\n{wrapped(entry.meaning)}\n"
            f"![{entry.name}: active clients per round, and the delay tau_t](patterns/{entry.name}.png)\n\n"
            f"{wrapped(f'**Models:** {lowered(entry.use)}')}\n{wrapped(f'**Delays:** {lowered(entry.delay)}')}\n"
            f"```python\nimport fedsum\n\n{entry.code}\nprint(fedsum.delays(schedule, rounds=500).max)\n```\n"
        )
        if entry.settings:
            parts.append(f"\nIn a settings file:\n\n```toml\n{entry.settings}\n```\n")
    return "".join(parts)


def picture_data(schedule):
    """What a picture shows: the raster and tau_t."""
    measured = measure(schedule, range(SHOWN), seed=SEED)
    return measured.raster, measured.delays.tau


def digest(raster, tau):
    return hashlib.sha256(
        np.ascontiguousarray(raster).tobytes() + np.asarray(tau, dtype=np.int64).tobytes()
    ).hexdigest()


def draw(schedule, path):
    raster, tau = picture_data(schedule)
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(5, 2))
    top.imshow(raster, cmap="Blues", aspect="auto", interpolation="nearest", vmin=0, vmax=1.2)
    top.set_ylabel("client")
    bottom.plot(tau, color=COLOURS[1], linewidth=1.5)
    bottom.set_ylim(bottom=0)
    bottom.set_xlabel("round")
    bottom.set_ylabel("tau_t")
    drawn, described = io.BytesIO(), PngInfo()
    figure.savefig(drawn, dpi=100)
    described.add_text("data", digest(raster, tau))
    with Image.open(drawn) as image:
        image.convert("RGB").quantize(24).save(path, optimize=True, pnginfo=described)


def schedules(folder):
    return {entry.name: schedule_of(entry, folder) for entry in ENTRIES}


if __name__ == "__main__":
    import tempfile

    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        made = schedules(Path(temporary))
    PAGE.write_text(page(made))
    for name, schedule in made.items():
        draw(schedule, FOLDER / f"{name}.png")
