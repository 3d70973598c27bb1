"""Availability from intervals, the index behind it, and converters of other projects' traces."""

import gzip
import json
import os
import pickle
import tomllib
import tracemalloc
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fedsum as fs
from fedsum import Availability, InputError, Trace
from fedsum import figures as fedsum_figures
from fedsum.participation import read_fedscale, read_flash
from fedsum.participation.span_index import SpanIndex, merged
from fedsum.spec import ScheduleSpec, first_difference

DATA = os.environ.get("FEDSUM_DATA")
PHONES = Path(DATA or ".") / "traces" / "phones.csv"


def sets_of(schedule, rounds=None):
    return [schedule.active(0, t).tolist() for t in range(rounds or schedule.rounds)]


# A literal transcription: every client, every round, every instant of a fine grid.

intervals = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-20, 80), st.integers(0, 40)).map(lambda t: (t[0], t[1], t[1] + t[2])),
    min_size=1,
    max_size=12,
)


def literal(rows, n, length, offset, cover, rounds):
    """Times are whole numbers, so [k, k + 1) is available or not."""
    when = [{k for client, start, end in rows if client == i for k in range(start, end)} for i in range(n)]
    instants = [{start for client, start, end in rows if client == i and start == end} for i in range(n)]
    sets = []
    for t in range(rounds):
        inside = range(offset + t * length, offset + (t + 1) * length)
        if cover == "whole":
            sets.append([i for i in range(n) if when[i].issuperset(inside)])
        else:
            sets.append([i for i in range(n) if (when[i] | instants[i]).intersection(inside)])
    return sets


@given(intervals, st.integers(1, 9), st.integers(-10, 10), st.sampled_from(["whole", "any"]), st.integers(1, 30))
@example([(0, 6, 6), (1, 0, 1)], 3, 0, "any", 4)  # an instant on the boundary of two rounds
@example([(0, 5, 6), (0, 6, 6)], 3, 0, "any", 4)  # the same, at the end of another interval of the client
@settings(deadline=None)
def test_rounds_equal_a_literal_transcription(rows, length, offset, cover, rounds):
    expected = literal(rows, 5, length, offset, cover, rounds)
    clients, starts, ends = zip(*rows, strict=True)
    fields = {"n": 5, "round_length": length, "offset": offset, "cover": cover, "rounds": rounds}
    if not any(expected):
        with pytest.raises(InputError, match="no client is available"):
            Availability.from_intervals(clients, starts, ends, **fields)
        return
    made = Availability.from_intervals(clients, starts, ends, **fields)
    assert sets_of(made) == expected
    assert [made.index.count(t) for t in range(rounds)] == [len(ids) for ids in expected]
    draw = np.random.default_rng(0)
    for t, ids in enumerate(expected):
        if ids:
            chosen = made.index.chosen(t, (len(ids) + 1) // 2, draw)
            assert set(chosen.tolist()) <= set(ids)
            assert len(np.unique(chosen)) == (len(ids) + 1) // 2


def test_clients_are_chosen_uniformly():
    index = SpanIndex(np.arange(6), np.array([0, 1, 2, 3, 3, 0]), np.array([9, 9, 4, 4, 8, 2]), 9)
    draw, counts = np.random.default_rng(1), np.zeros(6)
    for _ in range(6000):
        counts[index.chosen(3, 2, draw)] += 1
    assert counts[5] == 0
    assert np.abs(counts[:5] / 6000 - 0.4).max() < 0.03


def test_a_choice_among_chosen_clients_is_uniform():
    twice = fs.Sampled(fs.Sampled(fs.Uniform(20, 20), 10), 3)
    counts = np.zeros(20)
    for t in range(4000):
        counts[twice.active(0, t)] += 1
    assert counts / 4000 == pytest.approx(np.full(20, 3 / 20), abs=0.03)


def test_a_round_costs_no_more_than_its_clients():
    """A million clients, of whom ten are there in a round: a query touches a few kilobytes."""
    n = 10**6
    clients = np.arange(n)
    index = SpanIndex(clients, clients // 10, clients // 10 + 1, n // 10)
    tracemalloc.start()
    ids = [index.all(t) for t in (0, 50_000, 99_999)] + [index.chosen(7, 3, np.random.default_rng(0))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(found) for found in ids] == [10, 10, 10, 3]
    assert peak < 100_000


def test_overlapping_intervals_are_merged_without_rounding():
    big = 1.7e9
    clients, start, end = merged(
        np.array([7, 7, 7, 2]), np.array([big + 0.3, big, 5.0, 1.0]), np.array([9e9, 2e9, 6, 2])
    )
    assert (clients.tolist(), start.tolist(), end.tolist()) == ([2, 7, 7], [1.0, 5.0, big], [2.0, 6.0, 9e9])


# Files.

ROWS = [("anna", 0, 130), ("bert", 60, 120), ("bert", 120, 240), ("carl", 100, 110)]


def written(folder):
    """The same intervals in every kind of file, as numbers and as dates."""
    numbers = pd.DataFrame(ROWS, columns=["client", "start", "end"])
    day = datetime(2026, 1, 1)
    dates = numbers.assign(
        **{c: [(day + timedelta(seconds=s)).isoformat() for s in numbers[c]] for c in ("start", "end")}
    )
    numbers.to_csv(folder / "a.csv", index=False)
    dates.to_csv(folder / "b.csv", index=False)
    (folder / "c.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    numbers.to_json(folder / "d.jsonl", orient="records", lines=True)
    dates.to_parquet(folder / "e.parquet")
    return [folder / name for name in ("a.csv", "b.csv", "c.csv.gz", "d.jsonl", "e.parquet")]


def test_every_kind_of_file(tmp_path):
    for path in written(tmp_path):
        whole = Availability.read(path, round_length=60)
        assert whole.names == ("anna", "bert", "carl")
        assert sets_of(whole) == [[0], [0, 1], [1], [1]]
        some = Availability.read(path, round_length=60, cover="any", clients=5, repeat=True)
        assert sets_of(some, 5) == [[0], [0, 1, 2], [0, 1], [1], [0]]
        assert (some.n, some.describe().N) == (5, 5)
    shifted = Availability.read(tmp_path / "b.csv", round_length=60, offset="2026-01-01T00:00:30")
    assert sets_of(shifted) == [[0], [1], [1]]
    assert sets_of(Availability.read(tmp_path / "a.csv", round_length=60, rounds=6))[4:] == [[], []]
    renamed = tmp_path / "log.csv"
    renamed.write_text("phone,from,to\nx,0,10\n")
    columns = {"client_column": "phone", "start_column": "from", "end_column": "to"}
    assert sets_of(Availability.read(renamed, round_length=5, **columns)) == [[0], [0]]
    assert repr(Availability.read(renamed, round_length=5, **columns)).startswith("Availability(1 clients, 2 rounds")


def test_instants_are_read_too(tmp_path):
    (tmp_path / "t.csv").write_text("time,client\n100.5,a\n159,b\n160,a\n161.0,a\n282,b\n")
    (tmp_path / "r.csv").write_text("round,client\n0,2\n1,0\n3,0\n")
    for name, fields in (("t.csv", {"round_length": 60}), ("r.csv", {"clients": 4})):
        trace = Trace.read(tmp_path / name, **fields)
        assert sets_of(Availability.read(tmp_path / name, **fields)) == sets_of(trace)
        assert Availability.read(tmp_path / name, **fields).names == trace.names
    assert sets_of(Availability.read(tmp_path / "r.csv", rounds=2)) == [[1], [0]]


def test_an_offset_may_have_the_unit_of_the_times(tmp_path):
    start = 1_700_000_000
    rows = [
        f"{name},{1000 * (start + begin)},{1000 * (start + end)}"
        for name, begin, end in (("a", 0, 180), ("b", 60, 120))
    ]
    (tmp_path / "ms.csv").write_text("\n".join(["client,start,end", *rows]))
    for offset in (1000 * (start + 60), start + 60, "2023-11-14T22:14:20Z"):
        with pytest.warns(UserWarning, match="the times are milliseconds since 1970") as warned:
            made = Availability.read(tmp_path / "ms.csv", round_length=60, offset=offset)
        assert (sets_of(made), len(warned)) == ([[0, 1], [0]], 1)


def test_days_of_a_parquet_file_are_dates(tmp_path):
    days = [datetime(2026, 1, day).date() for day in (1, 2, 4)]
    pd.DataFrame({"time": days, "client": ["a", "b", "a"]}).to_parquet(tmp_path / "days.parquet")
    assert sets_of(Trace.read(tmp_path / "days.parquet", round_length=86400)) == [[0], [1], [], [0]]


@pytest.mark.skipif(not PHONES.is_file(), reason="needs the traces of FEDSUM_DATA")
def test_the_phones_trace_comes_back_from_intervals(tmp_path, fedsum):
    trace = Trace.read(PHONES)
    assert (trace.n, trace.rounds) == (512, 241)
    code, out, _ = fedsum("trace", "convert", PHONES, "--out", "phones.parquet", "--round-length", 1800, "--json")
    assert (code, json.loads(out)["clients"]) == (0, 512)
    again = Availability.read("phones.parquet", round_length=1800, offset=0)
    assert sets_of(again) == sets_of(trace)
    assert again.names == trace.names
    fedsum("trace", "convert", "phones.parquet", "--out", "rounds.csv.gz", "--round-length", 1800, "--offset", 0)
    assert sets_of(Trace.read("rounds.csv.gz")) == sets_of(trace)
    code, out, _ = fedsum("delays", "phones.parquet", "--round-length", 1800, "--json")
    assert json.loads(out)["tau_max"] == fs.delays(trace, 241).max == 239


def test_the_command_fits_generators_and_samples(tmp_path, fedsum, monkeypatch):
    truth = fs.Markov(60, on=0.8, off=0.95)
    rows = [f"{t},{i}" for t in range(200) for i in truth.active(3, t)]
    (tmp_path / "seen.csv").write_text("\n".join(["round,client", *rows]))
    code, out, _ = fedsum("delays", "seen.csv", "--fit")
    assert code == 0
    pasted = next(line for line in out.splitlines() if line.startswith("Python: ")).removeprefix("Python: ")
    generator = eval(pasted, {"fedsum": fs})
    assert isinstance(generator, fs.Markov)
    setting = next(line for line in out.splitlines() if line.startswith("settings file: "))
    table = tomllib.loads(setting.removeprefix("settings file: "))["schedule"]
    assert ScheduleSpec.parse(table).make(60) == generator
    assert generator.on == pytest.approx(0.8, abs=0.02)
    drawn = []
    monkeypatch.setattr(fedsum_figures, "save", lambda figure, path: drawn.append(figure) or path)
    entries = json.loads(fedsum("delays", "seen.csv", "--fit", "--json")[1])["fit"]
    titles = [axes.get_title() for axes in drawn[0].axes]
    assert "active clients of the fitted schedule, Markov" in titles
    *_, delay, _ = drawn[0].axes
    assert any(line.get_label().startswith("Markov") and len(line.get_xdata()) == 200 for line in delay.lines)
    (tmp_path / "steady.csv").write_text("round,client\n0,a\n0,b\n1,a\n1,b\n")
    code, _, error = fedsum("delays", "steady.csv", "--fit")
    assert (code, "no client is ever absent" in error) == (2, True)
    assert [entry["name"] for entry in entries] == ["Markov", "Diurnal"]
    assert entries[0]["nats"] < entries[1]["nats"]
    for order in ("uniform", "oldest"):
        sampled = json.loads(fedsum("delays", "seen.csv", "--size", 4, "--order", order, "--json")[1])
        assert (sampled["active_max"], sampled["rounds"]) == (4, 200)
    code, _, error = fedsum("delays", "seen.csv", "--order", "oldest")
    assert (code, "order = 'oldest': only together with size" in error) == (2, True)
    assert fedsum("delays", "spaced", "--rounds", 50)[0] == fedsum("delays", "diurnal", "--rounds", 50)[0] == 0


def test_a_sampled_schedule_in_a_settings_file(tmp_path, fedsum):
    (tmp_path / "charging.csv").write_text("client,start,end\n0,0,10\n1,3,6\n2,0,7\n")
    text = """
rounds = 12
local_steps = 2
eta_l = 0.1
task = {name = "quadratic", n = 3, d = 2}
algorithm = "MIFA"
[schedule]
name = "Sampled"
size = 1
order = "oldest"
availability = {name = "Availability", path = "charging.csv", round_length = 1, repeat = true}
"""
    (tmp_path / "run.toml").write_text(text)
    assert fedsum("run", "run.toml", "--folder", "whole")[0] == 0
    assert fedsum("run", "run.toml", "--folder", "part", "--set", "rounds=5")[0] == 0
    assert fedsum("resume", "part", "--set", "rounds=12")[0] == 0
    whole, part = (fs.read_runs(tmp_path / name)[0].last for name in ("whole", "part"))
    assert whole["train_loss"] == part["train_loss"]
    schedule = fs.Sampled(Availability.read("charging.csv", round_length=1, repeat=True), 1, "oldest")
    assert part["tau"] == fs.delays(schedule, 12).tau[-1]
    (tmp_path / "short.toml").write_text(text.replace(", repeat = true", ""))
    code, _, error = fedsum("run", "short.toml")
    assert (code, "rounds = 12: the schedule has 10 rounds" in error) == (2, True)
    (tmp_path / "copy.csv").write_bytes((tmp_path / "charging.csv").read_bytes())
    dumps = [
        ScheduleSpec.of(fs.Sampled(Availability.read(name, round_length=1), 1), 5, 0).dump()
        for name in ("charging.csv", "copy.csv")
    ]
    assert dumps[0]["availability"]["path"] != dumps[1]["availability"]["path"]
    assert first_difference({"schedule": dumps[0]}, {"schedule": dumps[1]}) is None
    unknown_n = ScheduleSpec.parse({"name": "Sampled", "size": 1, "availability": {"name": "sine", "size": 1}})
    assert unknown_n.with_clients(4) == ScheduleSpec.parse(unknown_n.with_clients(4).dump(), 4)
    with pytest.raises(InputError, match="availability = None: is required"):
        ScheduleSpec.parse({"name": "Sampled", "size": 1})


BAD = {
    "client,start,end\n": "at least one line after the header",
    "client,start,end\na,0,1\nb,5,4\n": "line 3 = '4': an end, not before its start 5",
    "client,start,end\na,0,soon\n": "line 2 = 'soon': a time",
    "client,start,end\n,0,1\n": "line 2 = '': a client name",
    "client,start,end\na,0\n": "line 2 = 'a,0': needs the columns client, start and end",
    "device,start,end\na,0,1\n": "the columns client,start,end are needed",
    "client,start,end\na,0,0.5\n": "cover = 'whole': no client is available for a whole round",
    "client,start,end\na,0,1e300\n": "lies beyond the 10000000 rounds",
}


@pytest.mark.parametrize(("text", "message"), BAD.items(), ids=range(len(BAD)))
def test_malformed_files_are_named(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        Availability.read(tmp_path / "t.csv", round_length=1)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_refusals(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("client,start,end\na,0,10\n")
    (tmp_path / "r.csv").write_text("round,client\n0,a\n")
    for call, message in [
        (lambda: Availability.read(path), "round_length = None: a number"),
        (lambda: Availability.read(path, round_length=1, cover="most"), "cover = 'most'"),
        (lambda: Availability.read(path, round_length=1, clients=["b"]), "not among the 1 clients given"),
        (lambda: Availability.read(path, round_length=1, offset=20), "cover = 'whole'"),
        (lambda: Availability.read(path, round_length=1, rounds=0), "rounds = 0"),
        (lambda: Availability.read(path, round_length=1, end_column="stop"), "end_column = 'stop'"),
        (lambda: Availability.read(tmp_path / "r.csv", offset=1), "offset = 1: leave it out"),
        (lambda: Availability.read(path, round_length=1).active(0, 10), "round = 10: from 0 to 9"),
        (lambda: Availability.from_intervals([3], [0], [1], n=3, round_length=1), "clients[0] = 3"),
        (lambda: Availability.from_intervals([0], [0], [-1], n=3, round_length=1), "ends[0] = -1.0"),
        (lambda: Availability.from_intervals([0], [0, 1], [1], n=3, round_length=1), "as many clients as"),
        (lambda: Availability.of(fs.Uniform(3, 1)), "rounds = None"),
    ]:
        with pytest.raises(InputError) as caught:
            call()
        assert message in str(caught.value)
    short, task = Availability.read(path, round_length=1), fs.tasks.Quadratic([[1.0]], [[1.0]])
    with pytest.raises(InputError, match="the schedule has 10 rounds"):
        fs.simulate(task, fs.FedSUM(), short, rounds=11, local_steps=1, eta_l=0.1)


def test_a_run_with_intervals_is_resumed_and_notices_a_changed_file(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("client,start,end\n0,0,10\n1,3,6\n1,8,9\n")
    task = fs.tasks.Quadratic([[1.0], [3.0]], [[0.0], [4.0]])
    options = {"rounds": 8, "local_steps": 2, "eta_l": 0.1, "eval_every": 2}
    read = {"round_length": 2, "repeat": True}
    full = fs.simulate(task, fs.FedSUM(), Availability.read(path, **read), **options)
    folder = tmp_path / "run"
    fs.simulate(task, fs.FedSUM(), Availability.read(path, **read), folder=folder, **(options | {"rounds": 4}))
    fs.simulate(task, fs.FedSUM(), Availability.read(path, **read), folder=folder, extend=True, **options)
    spec = fs.read_runs(folder)[0].config["schedule"]
    assert (spec["name"], spec["round_length"], spec["repeat"]) == ("Availability", 2, True)
    assert fs.read_runs(folder)[0].last["train_loss"] == full.rows[-1]["train_loss"]
    path.write_text("client,start,end\n0,0,10\n1,8,10\n")
    with pytest.raises(InputError, match=r"schedule\.sha256"):
        fs.simulate(task, fs.FedSUM(), Availability.read(path, **read), folder=folder, extend=True, **options)


# FedScale.


def fedscale_file(path, content, protocol=4):
    path.write_bytes(pickle.dumps(content, protocol=protocol))
    return path


FEDSCALE = {
    1: {"duration": 60, "inactive": [30, 80], "finish_time": 100, "active": [10, 40], "model": "CPH1801"},
    2: {"duration": 5, "inactive": [5.5, 3], "finish_time": 50, "active": [0, 20], "model": "x"},
}


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_fedscale_traces_cycle(protocol, tmp_path, fedsum):
    fedscale_file(tmp_path / "client_behave_trace", FEDSCALE, protocol)
    code, out, _ = fedsum("trace", "convert", "client_behave_trace", "--out", "out.csv")
    assert (code, "4 rows of client,start,end, 2 clients" in out) == (0, True)
    rows = pd.read_csv("out.csv").to_numpy().tolist()
    assert rows == [[1, 10, 30], [1, 40, 80], [2, 0, 5.5], [2, 50, 55.5]]
    fedsum("trace", "convert", "client_behave_trace", "--out", "long.csv", "--length", 145)
    rows = pd.read_csv("long.csv").to_numpy().tolist()
    assert rows == [[1, 10, 30], [1, 40, 80], [1, 110, 130], [1, 140, 145], [2, 0, 5.5], [2, 50, 55.5], [2, 100, 105.5]]
    fedsum("trace", "convert", "client_behave_trace", "--out", "once.csv", "--unknown", "absent")
    assert len(pd.read_csv("once.csv")) == 3


class Malicious:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (open, (str(self.target), "w"))


def test_a_malicious_pickle_is_refused_and_nothing_runs(tmp_path, fedsum):
    target = tmp_path / "executed"
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for content in (Malicious(target), {1: {"active": [Malicious(target)], "inactive": [1], "finish_time": 2}}):
            fedscale_file(tmp_path / "trace.pkl", content, protocol)
            with pytest.raises(InputError, match=r"it asks for .*open; only dicts, lists, numbers and strings"):
                read_fedscale(tmp_path / "trace.pkl")
    code, _, error = fedsum("trace", "convert", "trace.pkl", "--out", "out.csv")
    assert (code, error.count("\n")) == (2, 1)
    by_hand = {
        b"cos\nsystem\n(S'touch executed'\ntR.": "it asks for os.system",
        b"\x80\x02Ppersistent\n.": "it refers to other files",
        b"\x80\x02\x82\x01.": "unregistered extension code",
        b"\x80\x04": "a pickle of FedScale's trace",
        b"": "a pickle of FedScale's trace",
    }
    for content, message in by_hand.items():
        (tmp_path / "trace.pkl").write_bytes(content)
        with pytest.raises(InputError, match=message):
            read_fedscale(tmp_path / "trace.pkl")
    assert not target.exists()
    assert not (tmp_path / "out.csv").exists()


def test_malformed_fedscale_traces_are_named(tmp_path):
    good = {"active": [0], "inactive": [5], "finish_time": 10}
    for content, message in [
        ([1], "a dict of clients"),
        ({}, "a dict of clients"),
        ({1: 5}, "client 1 = 5: a dict of clients"),
        ({1: good | {"active": [0, 1]}}, "two lists of the same length"),
        ({1: good | {"active": (0,)}}, "two lists of the same length"),
        ({1: good | {"active": ["0"]}}, "a finite number of seconds"),
        ({1: good | {"inactive": [float("inf")]}}, "a finite number of seconds"),
        ({1: good | {"finish_time": 0}}, "greater than 0"),
        ({1: good | {"finish_time": None}}, "a finite number of seconds"),
        ({(1,): good}, "a dict of clients"),
    ]:
        fedscale_file(tmp_path / "t", content)
        with pytest.raises(InputError) as caught:
            read_fedscale(tmp_path / "t")
        assert message in str(caught.value)
    with pytest.raises(InputError, match="a readable file"):
        read_fedscale(tmp_path / "none")


# FLASH.


def events(*lines):
    """Events at minutes of 29 January 2020."""
    return {
        "guid": "g",
        "model": "m",
        "messages": "\n".join(f"2020-01-29 {at // 60:02d}:{at % 60:02d}:00\t{event}" for at, event in lines) + "\n",
    }


MIDNIGHT = datetime.fromisoformat("2020-01-29T00:00:00+00:00").timestamp()


def minutes(record):
    return [tuple((time - MIDNIGHT) / 60 for time in pair) for pair in record.available]


def test_the_state_machine_of_flash(tmp_path):
    logs = {
        "idle, charging, Wi-Fi": events(
            (0, "screen_off"), (1, "battery_charged_on"), (2, "wifi"), (7, "35.0%"), (9, "4G"), (20, "battery_okay")
        ),
        "a locked screen that lights up is idle": events(
            (0, "wifi"),
            (0, "battery_charged_on"),
            (1, "screen_lock"),
            (5, "screen_on"),
            (8, "screen_unlock"),
            (9, "30%"),
        ),
        "an unknown network is not the absence of Wi-Fi": events(
            (0, "Wifi"), (0, "battery_charged_on"), (1, "screen_off"), (3, "Unknown"), (6, "screen_on"), (9, "2G")
        ),
        "charging until the end of the log": events(
            (0, "wifi"), (1, "screen_off"), (2, "battery_charged_on"), (9, "50%")
        ),
        "switched off": events(
            (0, "wifi"), (1, "screen_off"), (2, "battery_charged_on"), (4, "phone_off"), (6, "phone_on"), (9, "1%")
        ),
        "lines out of order": events(
            (9, "1%"), (2, "battery_charged_on"), (1, "screen_off"), (5, "screen_on"), (0, "wifi")
        ),
        "not charging says enough": events((3, "battery_charged_off"), (9, "screen_on")),
        "Wi-Fi is never known": events((0, "screen_off"), (1, "battery_charged_on"), (9, "10%")),
        "nothing": events(),
    }
    path = tmp_path / "state_traces.json"
    path.write_text(json.dumps(logs))
    records, unknown = read_flash(path)
    assert unknown == ["Wi-Fi is never known", "nothing"]
    found = {record.client: minutes(record) for record in records}
    assert list(found.values()) == [[(2, 9)], [(1, 8)], [(1, 6)], [(2, 9)], [(2, 4), (6, 9)], [(2, 5)], []]
    # A record begins when availability is known, not when the log begins.
    starts = [(record.start - MIDNIGHT) / 60 for record in records]
    assert starts == [2, 1, 1, 2, 2, 2, 3]


def test_time_outside_a_phones_log_is_unknown_and_repeats_it(tmp_path, fedsum):
    early = events((0, "wifi"), (0, "screen_off"), (0, "battery_charged_on"), (5, "3G"), (10, "1%"))
    late = events((20, "wifi"), (20, "screen_off"), (20, "battery_charged_on"), (22, "3G"), (30, "1%"))
    never = events((0, "screen_off"))
    (tmp_path / "state_traces.json").write_text(json.dumps({"early": early, "late": late, "never": never}))
    code, _, note = fedsum("trace", "convert", "state_traces.json", "--out", "all.csv")
    assert (code, "1 phones (never)" in note) == (0, True)
    table = pd.read_csv("all.csv")
    table[["start", "end"]] = (table[["start", "end"]] - MIDNIGHT) / 60
    assert table.to_numpy().tolist() == [
        *(["early", 0, 5], ["early", 10, 15], ["early", 20, 25]),
        *(["late", 0, 2], ["late", 10, 12], ["late", 20, 22]),
    ]
    fedsum("trace", "convert", "state_traces.json", "--out", "known.jsonl", "--unknown", "absent")
    assert len(pd.read_json("known.jsonl", lines=True)) == 2


def test_malformed_flash_logs_and_commands_are_named(tmp_path, fedsum):
    for text, message in [
        ("[", "a readable JSON file"),
        ("[]", "an object of phones"),
        ('{"a": []}', 'an object with "messages"'),
        ('{"a": {"messages": "now\\twifi"}}', "phone 'a' line 1 = 'now\\twifi': a time, a tab and an event"),
        ('{"a": {"messages": "2020-01-29 00:00:00\\tdance"}}', "line 1 = 'dance': one of battery_charged_on"),
    ]:
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(InputError) as caught:
            read_flash(tmp_path / "t.json")
        assert message in str(caught.value)
    (tmp_path / "t.json").write_text(json.dumps({"a": events((0, "screen_off"))}))
    (tmp_path / "i.csv").write_text("client,start,end\na,0,10\n")
    for arguments, message in [
        (("t.json", "--out", "o.csv"), "no client in it is ever available"),
        (
            ("t.json", "--out", "o.csv", "--cover", "any"),
            "cover = 'any': FILE is converted to intervals; use this option when",
        ),
        (("i.csv", "--out", "o.txt", "--round-length", "1"), "a file name ending in .csv"),
        (("i.csv", "--out", "o.csv"), "round_length = None"),
        (("none", "--out", "o.csv"), "a readable file"),
    ]:
        code, _, error = fedsum("trace", "convert", *arguments)
        assert (code, message in error) == (2, True), error
    code, _, error = fedsum("delays", "i.csv", "--round-length", 1, "--time-column", "x")
    assert (code, "not for intervals, which take only n, round-length" in error) == (2, True)


def test_convert_reads_other_column_names(fedsum, tmp_path):
    (tmp_path / "seen.csv").write_text("seen_at,device,battery\n0,anna,5\n10,bert,6\n70,anna,7\n")
    names = ("--client-column", "device", "--time-column", "seen_at")
    code, _, error = fedsum("trace", "convert", "seen.csv", "--round-length", 60, *names, "--out", "out.csv")
    assert (code, error) == (0, "")
    assert (tmp_path / "out.csv").read_text().splitlines() == [
        "client,start,end",
        "anna,0.0,120.0",
        "bert,0.0,60.0",
    ]
    (tmp_path / "state_traces.json").write_text("{}")
    code, _, error = fedsum("trace", "convert", "state_traces.json", "--out", "out.csv", *names)
    assert (code, "client-column = 'device': not for the format flash" in error) == (2, True)
