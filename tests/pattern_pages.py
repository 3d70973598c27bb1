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
_INDEPENDENT_DELAYS = "An unlucky client waits several times as long."


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
        "`size` clients are drawn per round, uniformly and without replacement. The paper calls it P1 and Case 1.",
        "A server that draws from a pool that is always online.",
        f"A client is active every N/`size` rounds on average. {_INDEPENDENT_DELAYS}",
        'schedule = {name = "Uniform", size = 8}',
    ),
    Entry(
        "Independent",
        "schedule = fedsum.Independent(40, p=0.2)",
        "Each client is active with probability `p`, independently of other clients and rounds. The paper calls it "
        "P2 and Case 2. `p` is a number, one number per client, or a function of the round.",
        "Clients that decide for themselves. The number of active clients varies, and a round can be empty.",
        f"A client is active every 1/p rounds on average. {_INDEPENDENT_DELAYS}",
        'schedule = {name = "Independent", p = 0.2}',
    ),
    Entry(
        "Sine",
        "schedule = fedsum.Sine(40, size=8)",
        "Each client is active with probability size/n (0.3 sin(pi t/5) + 0.7) in round t. The paper calls it P3.",
        "A number of active clients that rises and falls every ten rounds.",
        "Somewhat longer than with `Independent`, because on average only 0.7 `size` clients are active.",
        'schedule = {name = "Sine", size = 8}',
    ),
    Entry(
        "Cyclic",
        "schedule = fedsum.Cyclic(40, size=8)",
        "Blocks of `size` clients take turns in a fixed order. The paper calls it Case 3.",
        "Clients in fixed shifts, or a server that goes through a list.",
        "The smallest possible with `size` clients per round: each client returns after N/`size` rounds. FedSUM is "
        "stable only with [a small step](theory.md#stability-limits-of-fedsum) here.",
        'schedule = {name = "Cyclic", size = 8}',
    ),
    Entry(
        "Reshuffled",
        "schedule = fedsum.Reshuffled(40, size=8)",
        "Blocks of `size` clients take turns. Each epoch of N/`size` rounds has a new random order. The paper calls it "
        "Case 4.",
        "A server that goes through a shuffled list, as data loaders do.",
        "Less than two epochs: a client can be first in one epoch and last in the next.",
        'schedule = {name = "Reshuffled", size = 8}',
    ),
    Entry(
        "Biased",
        "schedule = fedsum.Biased(40, group=4)",
        "Each client is active with the probability of its group of `group` clients: `start` in the first group, "
        "`drop` less in each following group, and never below `floor`.",
        "Clients with good and with bad connections. FedAvg is biased here.",
        "Long for the rare clients, short for the others.",
        'schedule = {name = "Biased", group = 4}',
    ),
    Entry(
        "Markov",
        "schedule = fedsum.Markov(40, on=0.9, off=0.975)",
        "An active client stays active with probability `on`. An absent client stays absent with probability `off`.",
        "Devices that are online for a while and then offline for a while.",
        "Long: an absence lasts 1/(1 - off) rounds on average. In the picture, two clients are absent in all rounds, "
        "so tau_t does not fall.",
        'schedule = {name = "Markov", on = 0.9, off = 0.975}',
    ),
    Entry(
        "Periodic",
        "schedule = fedsum.Periodic(40, groups=4, dwell=10, size=8)",
        "Groups of clients take turns of `dwell` rounds. In each round `size` clients of the group are drawn.",
        "Regions or time zones that are online one after the other.",
        "A client waits for the turns of all other groups. A client not drawn in a turn waits for the next one.",
        'schedule = {name = "Periodic", groups = 4, dwell = 10, size = 8}',
    ),
    Entry(
        "Spaced",
        "schedule = fedsum.Spaced(40, size=8, separation=4)",
        "As `Uniform`, but an active client is not drawn in the next `separation` - 1 rounds.",
        "A server that limits how often a client takes part, as matrix mechanisms for differential privacy require.",
        "Shorter than with `Uniform`, because the draw excludes the clients that were active last.",
        'schedule = {name = "Spaced", size = 8, separation = 4}',
    ),
    Entry(
        "Diurnal",
        "schedule = fedsum.Diurnal(40, peak=0.4, trough=0.02, period=24, zones=2)",
        "Each client is active with a probability that follows a cosine between `trough` and `peak`, with `period` "
        "rounds per day. `zones` time zones are spread evenly over the day.",
        "Phones that charge at night.",
        "Mostly less than a day, and up to two: a client that is not active near one peak waits for the next one.",
        'schedule = {name = "Diurnal", peak = 0.4, trough = 0.02, period = 24, zones = 2}',
    ),
    Entry(
        "Sampled",
        "nights = fedsum.Diurnal(40, peak=0.7, trough=0.05, period=24)\n"
        'schedule = fedsum.Sampled(nights, size=8, order="oldest")',
        "The server chooses `size` of the available clients, at random or by their last active round.",
        "A server that chooses among devices that come and go ([details]"
        "(participation.md#choosing-among-the-available-clients)).",
        'Short with order `"oldest"`, which chooses the clients that were active longest ago.',
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
        "A file lists the active clients per round. The example writes such a file; use your own log instead.",
        "A real federation, from a log of its rounds ([traces](participation.md#traces)).",
        "Those of the log. With `repeat`, the log starts over after its last round. In the picture, one client "
        "is absent in all rounds, so tau_t does not fall.",
        'task = {name = "digits", clients = 40}\nschedule = {name = "Trace", path = "seen.csv", repeat = true}',
    ),
    Entry(
        "Availability",
        "clients = list(range(40)) * 9\n"
        "starts = [24 * (k // 40) + k % 40 / 3 for k in range(360)]  # hours; one interval per client and day\n"
        "ends = [start + 5.5 for start in starts]\n"
        "schedule = fedsum.Availability.from_intervals(clients, starts, ends, n=40, round_length=1, repeat=True)",
        "All clients that are available for the whole round are active. The example has rounds of one hour, and "
        "each client is available for five and a half hours per day.",
        "Real devices, from a log of the times at which each was available ([intervals]"
        "(participation.md#availability-intervals)).",
        "Those of the log.",
    ),
    Entry(
        "Asynchronous",
        "speeds = fedsum.LogUniform(0.1, 1.0)\n"
        "schedule = fedsum.Asynchronous(40, fedsum.Devices(seconds_per_step=speeds), buffer=8)",
        "A round is one server step. The active clients are the next `buffer` clients whose updates arrive, so fast "
        "devices are active more often.",
        "A server that does not wait for slow devices ([asynchronous training](time.md#asynchronous-training)).",
        "Those of the slowest device. The age of the model that a client trained from is not part of them.",
        "[schedule]\n"
        'name = "Asynchronous"\nbuffer = 8\n'
        'devices = {seconds_per_step = {name = "LogUniform", low = 0.1, high = 1.0}}',
    ),
    Entry(
        "Explicit",
        "sets = [{t % 40, 7 * t % 40, t * t % 40} for t in range(200)]\n"
        "schedule = fedsum.Explicit(40, sets, repeat=True)",
        "You give the sets of client ids, one set per round.",
        "A pattern of your own, for example in a test.",
        "Those of your sets. If a client is in no set, tau_t grows without bound.",
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
            "A pattern decides which clients are active in each round. This page shows every pattern of fedsum with "
            f"N = {N} clients: what it models, a picture, and how long clients stay away. "
            "[Participation and delays](participation.md) lists the options of each pattern."
        ),
        f"\n{links}\n\n",
        wrapped(
            f"The table is measured over {MEASURED:,} rounds with seed {SEED}. The rarest client is the one with the "
            "fewest active rounds; the column shows the share of rounds in which it is active. tau_t is the longest "
            "any client has been away in round t, in rounds; tau_avg and tau_max are its mean and maximum. The last "
            "column is the paper's bound on the expected tau_max, for patterns to which a "
            "[lemma](theory.md#theorem-1-and-the-delay-lemmas) applies."
        ),
        f"\n{overview(schedules)}\n",
        wrapped(
            f"In each picture a row is a client and a column is one of the first {SHOWN} rounds. Blue means active. "
            "The curve below is tau_t. `fedsum delays PATTERN` draws such a picture for your own numbers."
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
