"""Recorded participation: CSV and Parquet, rounds and times, and malformed files."""

import gzip
import json
import random
import re
from datetime import UTC, datetime, timedelta

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedsum import Asynchronous, Availability, Devices, FedSUM, InputError, Sampled, Trace, Uniform, delays, simulate
from fedsum.tasks import Quadratic, Task


def write(path, text):
    path.write_text(text)
    return path


def sets_of(trace):
    return [[trace.names[i] for i in trace.active(0, t)] for t in range(trace.rounds)]


def test_rounds_and_names_of_any_kind(tmp_path):
    text = 'client,round,battery\nphone-7,0,0.5\n"O\'Brien, Zoë",2,\nphone-7,2,0.1\n'
    trace = Trace.read(write(tmp_path / "t.csv", text))
    assert trace.names == ("O'Brien, Zoë", "phone-7")
    assert sets_of(trace) == [["phone-7"], [], ["O'Brien, Zoë", "phone-7"]]
    assert trace.describe().N == trace.n == 2
    assert trace.describe().case is None


def test_whole_numbers_sort_as_numbers(tmp_path):
    trace = Trace.read(write(tmp_path / "t.csv", "round,client\n0,10\n0,9\n1,100\n"))
    assert trace.names == ("9", "10", "100")


@pytest.mark.parametrize("sampled", [False, True])
def test_clients_in_another_order_than_the_tasks_are_refused(sampled, tmp_path):
    """Sorted as text, dev10 comes before dev2."""
    names = [f"dev{i}" for i in range(1, 12)]
    rows = {name: (torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)) for name in names}
    task = Task(lambda: torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy, rows)
    path = write(tmp_path / "t.csv", "\n".join(["round,client", *(f"0,{name}" for name in names)]) + "\n")
    options = {"rounds": 1, "local_steps": 1, "eta_l": 0.1}

    def schedule(**given):
        trace = Trace.read(path, **given)
        return Sampled(trace, 2) if sampled else trace

    message = "'dev2', which is client 1 of the task; give both the same order with clients=task.client_names"
    with pytest.raises(InputError, match=re.escape(f"schedule.names[1] = 'dev10': {message}")):
        simulate(task, FedSUM(), schedule(), **options)
    assert simulate(task, FedSUM(), schedule(clients=task.client_names), **options).rows
    with pytest.raises(InputError, match="the task has 11 clients; give both the same order"):
        simulate(task, FedSUM(), schedule(clients=[*names, "dev12"]), **options)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_devices_in_another_order_than_the_tasks_are_refused(asynchronous, tmp_path):
    names = [f"dev{i}" for i in range(1, 12)]
    rows = {name: (torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)) for name in names}
    task = Task(lambda: torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy, rows)
    lines = [f"{name},{seconds}" for seconds, name in enumerate(names)]
    path = write(tmp_path / "d.csv", "\n".join(["client,seconds_per_step", *lines]) + "\n")

    def run(**given):
        devices = Devices.read(path, **given)
        options = {} if asynchronous else {"devices": devices}
        schedule = Asynchronous(11, devices, buffer=11) if asynchronous else Uniform(11, 11)
        return simulate(task, FedSUM(), schedule, rounds=1, local_steps=1, eta_l=0.1, **options)

    place = "schedule.devices" if asynchronous else "devices"
    with pytest.raises(
        InputError, match=re.escape(f"{place}.names[1] = 'dev10': 'dev2', which is client 1 of the task")
    ):
        run()
    assert run(clients=task.client_names).rows[-1]["time"] == 10
    log = Trace.read(write(tmp_path / "t.csv", "\n".join(["round,client", *(f"0,{n}" for n in names)])), clients=names)
    unnamed = {"rounds": 1, "local_steps": 1, "eta_l": 0.1, "devices": Devices.read(path)}
    with pytest.raises(
        InputError, match=r"client 1 of the schedule; give both the same order with clients=schedule\.names"
    ):
        simulate(Quadratic.random(11, 2), FedSUM(), log, **unnamed)
    own = Devices.read(path, clients=task.client_names)
    assert Devices.parse(own.dump()) == own
    assert "clients" not in Devices.read(path).dump()  # the order of the file's names needs no record
    with pytest.raises(InputError, match="clients = 'dev12': clients of the file"):
        Devices.read(path, clients=[*names, "dev12"])
    with pytest.raises(InputError, match="line 12 = 'dev11': not among the 10 clients given"):
        Devices.read(path, clients=names[:10])
    with pytest.raises(InputError, match="has no column client"):
        Devices.read(write(tmp_path / "kinds.csv", "up\n1\n"), clients=names)


def test_a_log_of_other_clients_is_accepted(tmp_path):
    """As when the availability of phones is used for hospitals' data."""
    rows = {name: (torch.ones(2, 3), torch.zeros(2, dtype=torch.int64)) for name in ("anna", "bert")}
    task = Task(lambda: torch.nn.Linear(3, 2), torch.nn.functional.cross_entropy, rows)
    trace = Trace.read(write(tmp_path / "t.csv", "round,client\n0,phone 1\n0,phone 2\n"))
    assert simulate(task, FedSUM(), trace, rounds=1, local_steps=1, eta_l=0.1).rows


def test_clients_never_named_count_too(tmp_path):
    path = write(tmp_path / "t.csv", "round,client\n0,2\n1,0\n")
    assert Trace.read(path, clients=4).names == ("0", "1", "2", "3")
    assert delays(Trace.read(path, clients=4), 2).counts.tolist() == [1, 0, 1, 0]
    assert Trace.read(path, clients=["2", "x", "0"]).active(0, 0).tolist() == [0]


def test_times_with_a_round_length(tmp_path):
    path = write(tmp_path / "t.csv", "time,client\n100.5,a\n159,b\n160,a\n161.0,a\n282,b\n")
    trace = Trace.read(path, round_length=60)
    assert sets_of(trace) == [["a", "b"], ["a"], [], ["b"]]


def test_times_on_the_edge_of_a_round_belong_to_the_next(tmp_path):
    path = write(tmp_path / "t.csv", "time,client\n0,a\n0.1,b\n0.2,c\n0.3,d\n")
    assert sets_of(Trace.read(path, round_length=0.1)) == [["a"], ["b"], ["c"], ["d"]]


def test_dates(tmp_path):
    lines = ["2026-01-01T00:00:00Z,a", "2026-01-01T01:59:59+01:00,b", "2026-01-01T02:00:00Z,a"]
    path = write(tmp_path / "t.csv", "\n".join(["time,client", *lines, ""]))
    assert sets_of(Trace.read(path, round_length=3600)) == [["a", "b"], [], ["a"]]


def test_times_of_different_kinds_are_refused(tmp_path):
    zone, none, number = "2026-01-01T00:00:00+01:00", "2026-01-01T03:00:00", "7200"
    for first, second, message in (
        (zone, none, "a date with a time zone, as in .*t.csv line 2"),
        (none, zone, "a date without a time zone, as in"),
        (number, zone, "a number, as in"),
    ):
        path = write(tmp_path / "t.csv", f"time,client\n{first},a\n{second},b\n")
        with pytest.raises(InputError, match=f"line 3 = {re.escape(repr(second))}: {message}"):
            Trace.read(path, round_length=3600)
        path = write(tmp_path / "t.csv", f"client,start,end\na,{first},{second}\n")
        with pytest.raises(InputError, match=message):
            Availability.read(path, round_length=3600)


def test_parquet_equals_csv(tmp_path):
    table = pd.DataFrame({"round": [0, 0, 3], "client": [5, 6, 5]})
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    assert sets_of(Trace.read(tmp_path / "t.parquet")) == sets_of(Trace.read(tmp_path / "t.csv"))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    timed = pd.DataFrame({"time": [start, start + timedelta(hours=1)], "client": ["a", "b"]})
    timed.to_parquet(tmp_path / "timed.parquet")
    assert sets_of(Trace.read(tmp_path / "timed.parquet", round_length=1800)) == [["a"], [], ["b"]]


def test_beyond_the_end(tmp_path):
    path = write(tmp_path / "t.csv", "round,client\n0,a\n1,b\n")
    with pytest.raises(InputError, match="repeat=True"):
        Trace.read(path).active(0, 2)
    assert Trace.read(path, repeat=True).active(0, 2).tolist() == [0]


names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1).map(str.strip).filter(bool)


@given(st.sets(st.tuples(st.integers(0, 30), names), min_size=1), st.randoms())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_trace_comes_back_whatever_the_order_of_its_lines(tmp_path, events, shuffle: random.Random):
    rows = sorted(events)
    shuffle.shuffle(rows)
    pd.DataFrame(rows, columns=["round", "client"]).to_csv(tmp_path / "t.csv", index=False)
    trace = Trace.read(tmp_path / "t.csv")
    found = {(t, trace.names[i]) for t in range(trace.rounds) for i in trace.active(0, t)}
    assert found == events
    assert set(trace.names) == {name for _, name in events}


BAD = {
    "": "the columns round,client or time,client are needed",
    "round,client\n": "at least one line after the header",
    "round;client\n0;1\n": "the columns round,client or time,client are needed",
    "round,time,client\n0,0,a\n": "the columns round,client or time,client are needed",
    "round,client\n0,a\nx,b\n": "line 3 = 'x': a round",
    "round,client\n0,a\n-1,b\n": "line 3 = '-1': a round",
    "round,client\n0,a\n1_0,b\n": "line 3 = '1_0': a round",
    "round,client\n0,a\n1.5,b\n": "line 3 = '1.5': a round",
    "round,client\n0,a\n\n0\n": "line 4 = '0': needs the columns round and client",
    "round,client\n0,a\n1,\n": "line 3 = '': a client name",
    "round,client\n0,a\n1,b\n0,a\n": "line 4 = 'a': client given twice in round 0, first at",
    'round,client\n0,"a\n': "line 2 = '?': not a CSV line",
    "round,client\n99999999999999999999,a\n": "line 2",
    f"round,client\n{'9' * 5000},a\n": "line 2",
}


@pytest.mark.parametrize(("text", "message"), BAD.items(), ids=range(len(BAD)))
def test_malformed_lines_are_named(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        Trace.read(write(tmp_path / "t.csv", text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


BAD_TIMES = {
    "time,client\n0,a\nsoon,b\n": "line 3 = 'soon': a time",
    "time,client\n0,a\n1_0,b\n": "line 3 = '1_0': a time",
    "time,client\n0,a\nnan,b\n": "line 3 = 'nan': a finite time",
    "time,client\n-1e308,a\n1e308,b\n": "line 3 = 1e+308: lies beyond",
}


@pytest.mark.parametrize(("text", "message"), BAD_TIMES.items(), ids=range(len(BAD_TIMES)))
def test_malformed_times_are_named(tmp_path, text, message):
    with pytest.raises(InputError) as caught:
        Trace.read(write(tmp_path / "t.csv", text), round_length=1.0)
    assert message in str(caught.value)


def test_other_refusals(tmp_path):
    rounds = write(tmp_path / "r.csv", "round,client\n0,a\n")
    times = write(tmp_path / "t.csv", "time,client\n0,a\n")
    (tmp_path / "latin.csv").write_bytes("round,client\n0,Zo\xeb\n".encode("latin-1"))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no")
    pd.DataFrame({"round": [0.5], "client": ["a"]}).to_parquet(tmp_path / "half.parquet")
    pd.DataFrame({"round": [0], "client": [None]}).to_parquet(tmp_path / "nobody.parquet")
    for call, message in [
        (lambda: Trace.read(tmp_path / "none.csv"), "an existing file ending in .csv"),
        (lambda: Trace.read(times), "round_length = None"),
        (lambda: Trace.read(times, round_length=0), "round_length = 0"),
        (lambda: Trace.read(rounds, round_length=5), "leave it out"),
        (lambda: Trace.read(rounds, clients=["b"]), "not among the 1 clients given"),
        (lambda: Trace.read(rounds, clients=["b", "b"]), "distinct names"),
        (lambda: Trace.read(rounds, clients="ab"), "a number, or a list of names"),
        (lambda: Trace.read(rounds, clients=0), "clients = 0"),
        (lambda: Trace.read(tmp_path / "latin.csv"), "a readable UTF-8 CSV file"),
        (lambda: Trace.read(tmp_path / "broken.parquet"), "a readable Parquet file"),
        (lambda: Trace.read(tmp_path / "half.parquet"), "row 1 = 0.5: a round"),
        (lambda: Trace.read(tmp_path / "nobody.parquet"), "row 1 = None: a client name"),
    ]:
        with pytest.raises(InputError) as caught:
            call()
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


# Logs as people have them.


def test_compressed_files_json_lines_and_columns_of_other_names(tmp_path):
    lines = "ts,device,other\n0,anna,x\n10,bert,x\n70,anna,x\n130,anna,x\n"
    (tmp_path / "log.csv").write_text(lines)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(lines.encode()))
    rows = [{"ts": 0, "device": "anna"}, {"ts": 10, "device": "bert"}, {"ts": 70, "device": "anna"}]
    text = "\n".join(map(json.dumps, [*rows, {"device": "anna", "ts": 130, "more": 1}])) + "\n\n"
    (tmp_path / "log.jsonl").write_text(text)
    (tmp_path / "log.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    columns = {"client_column": "device", "time_column": "ts", "round_length": 60}
    for name in ("log.csv", "log.csv.gz", "log.jsonl", "log.jsonl.gz"):
        trace = Trace.read(tmp_path / name, **columns)
        assert (trace.names, trace.rounds) == (("anna", "bert"), 3)
        assert [trace.active(0, t).tolist() for t in range(3)] == [[0, 1], [0], [0]]
    with pytest.raises(InputError, match="name others with client_column and time_column"):
        Trace.read(tmp_path / "log.csv", round_length=60)
    with pytest.raises(InputError, match=r"client_column = 'devise': a column of .*did you mean 'device'"):
        Trace.read(tmp_path / "log.csv", **(columns | {"client_column": "devise"}))
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(lines.encode())[:-9])
    (tmp_path / "bad.jsonl").write_text('{"round": 0, "client": 1}\n[1]\n')
    (tmp_path / "worse.jsonl").write_text('{"round": 0, "client": 1}\n{"round": 0}\n')
    (tmp_path / "first.jsonl").write_text('{"round": 0}\n{"round": 0, "client": 1}\n')
    for name, message in (
        ("log.csv.gz", "a readable"),
        ("bad.jsonl", "line 2 = "),
        ("worse.jsonl", "line 2 = '0'"),
        ("first.jsonl", "line 1 = '0': needs the columns"),
    ):
        with pytest.raises(InputError, match=message):
            Trace.read(tmp_path / name, **(columns if "csv" in name else {}))
    (tmp_path / "excel.csv").write_text("\ufeffround,client\n0,anna\n", encoding="utf-8")  # as Excel writes UTF-8
    assert Trace.read(tmp_path / "excel.csv").names == ("anna",)


def test_a_run_folder_remembers_the_columns(tmp_path, fedsum):
    (tmp_path / "log.csv").write_text("ts,device\n0,anna\n10,bert\n70,anna\n130,anna\n")
    schedule = '{name = "Trace", path = "log.csv", client_column = "device", time_column = "ts", round_length = 60}'
    task = 'task = {name = "quadratic", n = 2, d = 3}\nalgorithm = "FedSUM"\n'
    (tmp_path / "one.toml").write_text(f"rounds = 2\nlocal_steps = 1\neta_l = 0.1\n{task}schedule = {schedule}\n")
    assert fedsum("run", "one.toml")[0] == 0
    code, _, error = fedsum("resume", "runs/one", "--set", "rounds=3")
    assert code == 0, error


@pytest.mark.parametrize(("unit", "name"), [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")])
def test_milliseconds_are_detected_and_said(unit, name, tmp_path, fedsum):
    start = 1_700_000_000
    rows = [f"{int((start + seconds) * unit)},{client}" for seconds, client in ((0, "a"), (59, "b"), (60, "a"))]
    (tmp_path / "log.csv").write_text("\n".join(["time,client", *rows]))
    with pytest.warns(UserWarning, match=f"the times are {name} since 1970; round_length is in seconds"):
        trace = Trace.read(tmp_path / "log.csv", round_length=60)
    assert [trace.active(0, t).tolist() for t in range(trace.rounds)] == [[0, 1], [0]]
    code, out, error = fedsum("delays", "log.csv", "--round-length", 60, "--json")
    assert (code, json.loads(out)["rounds"], name in error) == (0, 2, True)


def test_named_clients_that_were_never_seen(tmp_path, fedsum):
    (tmp_path / "log.csv").write_text("round,client\n0,anna\n1,bert\n")
    trace = Trace.read(tmp_path / "log.csv", clients=4)
    assert trace.names == ("anna", "bert", "never seen 1", "never seen 2")
    assert trace.active(0, 1).tolist() == [1]
    (tmp_path / "many.csv").write_text("round,client\n" + "".join(f"0,{name}\n" for name in "fbdace"))
    assert Trace.read(tmp_path / "many.csv", clients=7).names == (*"abcdef", "never seen 1")
    with pytest.raises(InputError, match=r"clients = 1: .*from 2 up \(clients in the file\)"):
        Trace.read(tmp_path / "log.csv", clients=1)
    code, out, _ = fedsum("delays", "log.csv", "--n", 4, "--json")
    assert (code, json.loads(out)["clients"], json.loads(out)["never_seen"]) == (0, 4, 2)
