"""No reply of one client stops, fills or fools the server. Flower's own grid, with a SuperLink in this process."""

import json
import re
import time
import tracemalloc
from contextlib import closing

import httpx
import pytest
import torch
from flower_link import LinkGrid, deflated, rewritten, with_chunks
from flwr.app import Array, ArrayRecord, ConfigRecord, Error
from flwr.app.message import message as flower_message
from flwr.server.utils.validator import validate_message
from flwr.supercore.date import now
from test_flower_server import CONFIG, TASK, LocalGrid, N, federation, in_a_server_app, log  # noqa: F401

from fedsum import Explicit, FedAWE, FedSUM, FedSUMCR, InputError, Run, Trace
from fedsum.flower import Federation, Ledger, client_app, deployment_status
from fedsum.flower.attendance import LONGEST_PAUSE, Attendance
from fedsum.flower.certs import write_certs
from fedsum.flower.client_keys import read_client_keys
from fedsum.flower.journal import Journal
from fedsum.flower.protocol import MergeRules
from fedsum.flower.transport.reply_limits import ReplyLimits
from fedsum.training import Options


def link_grid(folder):
    return LinkGrid(client_app(lambda i, n: TASK), folder / "clients", CONFIG, N)


def missing(folder, rounds):
    """The clients that were not merged, per round."""
    trace = Trace.read(folder / "run" / "participation.csv", clients=N)
    return [set(range(N)) - set(trace.active(0, t).tolist()) for t in range(rounds)]


def many_names(body):
    """An ArrayRecord that names its array 10,000 times."""
    (array,) = json.loads(body).values()
    return json.dumps({"delta": array} | {f"v{i}": array for i in range(10_000)}).encode()


def large_text(reply):
    """A reply with 3 MB of text beside its vectors."""
    reply.content["status"]["status"] = "done" * 750_000
    return deflated(reply)


def many_objects(reply):
    """A small reply that costs the server a request per record."""
    for i in range(200):
        reply.content[f"record {i}"] = ConfigRecord({"i": i})
    return deflated(reply)


def claims(shape):
    """An array whose .npy header claims another shape."""

    def change(reply):
        data = reply.content["vectors"]["delta"].data.replace(b"(4,)", shape)
        reply.content["vectors"] = ArrayRecord({"delta": Array("float64", (4,), "numpy.ndarray", data)})
        return deflated(reply)

    return change


def failed(reason):
    def change(reply):
        reply.__dict__.update(_content=None, _error=Error(2, reason))
        return deflated(reply)

    return change


SPOILED = {
    "a chunk that does not exist": (
        lambda reply: rewritten(reply, "Array", with_chunks([7])),
        "sent a reply that cannot be read: ValueError('an array with a chunk that does not exist')",
    ),
    "a chunk 100,000 times": (
        lambda reply: rewritten(reply, "Array", with_chunks([0] * 100_000)),
        "bytes once decoded, more than 1,000,064",
    ),
    "an array 10,000 times": (
        lambda reply: rewritten(reply, "ArrayRecord", many_names),
        "sent a reply of 1,760,176 bytes once decoded",
    ),
    "an object that is not JSON": (
        lambda reply: rewritten(reply, "Array", lambda body: b"}{"),
        "sent a reply that cannot be read: JSONDecodeError",
    ),
    "3 MB of text": (large_text, "sent a reply of more than 1,000,064 bytes"),
    "200 records": (many_objects, "objects, more than 79"),
    "a header with another shape": (claims(b"(9,)"), "sent a reply that cannot be read"),
    "newlines and terminal codes": (
        failed("first\n2026-01-01 round 9: all is well \x1b[2J" + "x" * 5000),
        "failed: first\\n2026-01-01 round 9: all is well \\x1b[2J" + "x" * (300 - 42) + "... (",
    ),
}


def test_a_malformed_reply_costs_only_its_sender(tmp_path):
    """Row: a reply is malformed or too large, or decodes to gigabytes => refused before it is decoded, and deleted
    from the SuperLink. The other clients' round is not affected.

    Row: a client sends 50 MB of text, newlines or terminal codes => too much text is refused by its size. The log has
    300 characters of it (`text-limit`), on one line, with control characters escaped.
    """
    grid = link_grid(tmp_path)
    changes = [change for change, _ in SPOILED.values()]
    grid.link.spoil = lambda t, client, reply: changes[t](reply) if 0 <= t < len(changes) and client == t % N else None
    tracemalloc.start()
    rounds = len(changes) + 1
    federation(tmp_path, FedSUM(), grid=grid, rounds=rounds, deadline=30.0, on_loss="table")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6
    assert missing(tmp_path, rounds)[:-1] == [{t % N} for t in range(len(changes))]
    lines = log(tmp_path)
    for _, line in SPOILED.values():
        assert line in lines
    assert "\x1b" not in lines
    assert all(line.startswith("20") for line in lines.splitlines())
    assert max(map(len, lines.splitlines())) < 500


def test_a_malformed_client_id_costs_only_its_sender(tmp_path):
    """Row: a reply is malformed or too large, or decodes to gigabytes."""
    grid = link_grid(tmp_path)
    spoil = {1: lambda reply: rewritten(reply, "ConfigRecord", lambda body: b"}{"), 2: large_client_id}
    grid.link.spoil = lambda t, client, reply: spoil[client](reply) if t < 0 and client in spoil else None
    federation(tmp_path, FedSUM(), grid=grid, rounds=2, deadline=30.0)
    assert missing(tmp_path, 2) == [{1, 2}] * 2
    assert "node 101 did not say which client it is: a reply that cannot be read" in log(tmp_path)
    assert "node 102 did not say which client it is: a reply of more than 1,000,064 bytes" in log(tmp_path)


def large_client_id(reply):
    reply.content["hello"]["client"] = "2" * 3_000_000
    return deflated(reply)


def test_client_text_is_escaped_and_cut():
    assert ReplyLimits(1, 1, text=5).shown("ab\ncdefgh") == "ab\\ncd... (9 characters)"


def test_the_limits_are_multiples_of_an_uplink_or_settings():
    uplink = {"delta": torch.zeros(1000)}
    assert ReplyLimits.of(uplink) == ReplyLimits(1_008_000, 1_008_000, 300)
    assert ReplyLimits.of(uplink, message_mb=3) == ReplyLimits(3_000_000, 3_000_000, 300)
    assert ReplyLimits.of(uplink, inflated_mb=3, text=5) == ReplyLimits(1_008_000, 3_000_000, 5)


def test_a_client_that_offends_again_and_again_is_skipped(tmp_path):
    """Row: a client gets three strikes => three unreadable or refused replies, or lost states, in 50 attempts at a
    round: it is not asked until one of them no longer counts. The log and `fedsum flower status` say so.
    """
    grid = link_grid(tmp_path)
    spoil, _ = SPOILED["an object that is not JSON"]
    grid.link.spoil = lambda t, client, reply: spoil(reply) if t >= 0 and client == 1 else None
    federation(tmp_path, FedSUM(), grid=grid, rounds=5, deadline=30.0)
    assert [t for t in range(5) if f"round {t}: client 1 sent a reply that cannot be read" in log(tmp_path)] == [
        0,
        1,
        3,
    ]
    assert log(tmp_path).count("client 1 has 3 strikes: it is not asked in the next 46 attempts") == 1
    rows = deployment_status(tmp_path / "run").clients
    assert [(row["strikes"], row["skipped"]) for row in rows] == [(0, 0), (3, 45), (0, 0), (0, 0)]


def reports_lost(content):
    content["status"]["status"] = "lost"
    content["vectors"] = ArrayRecord()


@pytest.mark.parametrize("others", ["reply", "lose their states, too"])
def test_the_first_reply_alone_does_not_reset_all_clients(others, tmp_path):
    """Row: a client is the first to reply, with *lost*, and `on-loss` is "reset" => the server waits until the other
    replies show whose fault it is. If at least half of the replies are good, the client gets a strike; if not, a server
    that was restored by hand is the likely cause.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    first_poll, epochs = {}, []

    def fails(kind, t, client):
        has_state = kind == "train.work" and ledger.state.last
        loses = has_state and (others == "reply" or ledger.state.epoch < 3)
        if loses and client == 1:
            return reports_lost
        since = time.monotonic() - first_poll.setdefault((ledger.state.attempts, client), time.monotonic())
        if has_state and since < 0.1:
            return "silent"
        return reports_lost if loses and others != "reply" else None

    grid.fails = fails
    ledger = Ledger(FedSUM(), TASK.init(0), N, Options(rounds=8, local_steps=2, eta_l=0.05), MergeRules(norm_limit=0))
    with closing(Journal(tmp_path / "run")) as journal:
        run = Federation(ledger, journal, on_round=lambda ledger, outcome: epochs.append(ledger.state.epoch))
        run.start(grid, timeout=20.0)
    assert ledger.state.epoch == 3
    assert epochs == [0, 1, 2, 3, 3, 3, 3, 3]
    assert ("client 1 has 3 strikes" in log(tmp_path)) == (others == "reply")


def test_a_reply_counts_for_the_order_that_the_superlink_recorded(tmp_path):
    """Row: a reply names another client's order or another client => refused. The SuperLink's record says whose
    reply it is.
    """
    grid = link_grid(tmp_path)
    orders = {}

    def as_client_0(t, client, reply):
        orders[t, client] = reply.metadata.reply_to_message_id
        if (t, client) != (1, 1):
            return None
        reply.metadata.__dict__["_reply_to_message_id"] = orders[1, 0]
        reply.content["step_id"]["client"] = 0
        return deflated(reply)

    grid.link.spoil = as_client_0
    federation(tmp_path, FedSUM(), grid=grid, rounds=2, deadline=2.0)
    assert missing(tmp_path, 2) == [set(), {1}]
    assert "client 1 replied as client 0: refused" in log(tmp_path)


def test_an_upload_that_never_ends_costs_its_sender_the_round(tmp_path):
    """Row: a client announces a reply and does not upload it => no reply. The server does not wait for the upload
    beyond the deadline.
    """
    grid = link_grid(tmp_path)
    grid.link.withheld = lambda t, client: (t, client) == (1, 2)
    began = time.monotonic()
    federation(tmp_path, FedSUM(), grid=grid, rounds=3, deadline=1.0)
    assert time.monotonic() - began < 6
    assert missing(tmp_path, 3) == [set(), {2}, set()]
    assert "round 1: client 2 did not reply within 1 s" in log(tmp_path)
    assert len(grid.link.confirmed) == N + 3 * N  # all replies are deleted from the SuperLink, also the unfinished one


@pytest.mark.parametrize(("seconds", "where"), [(86_400, "ahead of"), (-86_400, "behind")])
def test_a_wrong_clock_is_reported_and_harmless(seconds, where, tmp_path, monkeypatch):
    """Row: a client's clock is wrong => its replies are merged, and the log warns once. With authentication, Flower
    refuses a SuperNode whose clock is off by minutes.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    answered = grid.answered

    def with_clock(message):
        with monkeypatch.context() as patch:
            if grid.nodes[message.metadata.dst_node_id] == 2:
                wrong = now().timestamp() + seconds
                patch.setattr(flower_message, "now", lambda: now().fromtimestamp(wrong, now().tzinfo))
                patch.setattr("fedsum.flower.clientapp.time.time", lambda: wrong)
            replies = answered(message)
        for reply in replies:
            reply.metadata.__dict__["_message_id"] = "reply"
            reply.metadata.dst_node_id = reply.metadata.dst_node_id or 1
            assert not [e for e in validate_message(reply, is_reply_message=True) if "ttl" in e.lower()]
        return replies

    grid.answered = with_clock
    federation(tmp_path, FedSUM(), grid=grid, rounds=2)
    assert missing(tmp_path, 2) == [set(), set()]
    assert log(tmp_path).count(f"client 2's clock is 86,400 s {where} the server's: synchronise it") == 1


def test_a_dead_client_costs_a_few_deadlines(tmp_path):
    """Row: a client is listed as online and never replies => after k faults in a row it is not asked in the next
    2^(k-1) - 1 attempts (at most 63), unless the quorum needs it. `fedsum flower status` shows it. A restart of its
    SuperNode ends the pause.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    grid.fails = lambda kind, t, client: "silent" if client == 1 and kind == "train.work" and t < 10 else None
    federation(tmp_path, FedSUM(), grid=grid, rounds=16, deadline=0.3)
    lines = log(tmp_path)
    asked = [t for t in range(16) if f"round {t}: client 1 did not reply within 0.3 s" in lines]
    assert asked == [0, 1, 3, 7]  # pauses of 0, 1, 3 and 7 rounds
    assert missing(tmp_path, 16)[14:] == [{1}, set()]
    assert lines.count("not asked after repeated faults: 1") == 1 + 3 + 7


def test_a_restart_of_the_supernode_ends_the_pause(tmp_path):
    """Row: a client is listed as online and never replies."""
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    grid.fails = lambda kind, t, client: "silent" if client == 1 and kind == "train.work" and t < 4 else None

    def restart(ledger, outcome):
        if ledger.state.t == 4:
            del grid.nodes[101]
            grid.nodes[201] = 1

    federation(tmp_path, FedSUM(), grid=grid, rounds=6, deadline=0.3, on_round=restart)
    assert missing(tmp_path, 6) == [{1}] * 4 + [set()] * 2  # without a restart it would not be asked before round 7


def test_nobody_is_skipped_whom_the_quorum_needs():
    """Row: a client is listed as online and never replies."""
    attendance = Attendance()
    for _ in range(20):
        attendance.fault(3, "silent")
    assert attendance.begin_attempt([1, 2, 3], 3) == set()
    assert attendance.begin_attempt([1, 2, 3], 2) == {3}
    assert attendance.dump() == {"3": {"faults": {"silent": 20}, "skipped": 1, "pause": LONGEST_PAUSE - 2}}
    assert Attendance.restored(attendance.dump()).begin_attempt([3, 4], 1) == set()
    attendance.returned(3)
    assert attendance.begin_attempt([1, 2, 3], 2) == set()


def test_a_scheduled_client_that_is_offline_costs_a_few_deadlines(tmp_path):
    """Row: a scheduled client is offline => counts as a fault, like a missing reply. The client is then asked less
    often, so it costs a few deadlines and not one per round.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM(), nodes=3)
    began = time.monotonic()
    federation(tmp_path, FedSUM(), grid=grid, rounds=12, deadline=0.4, schedule=Explicit(N, [[0, 3]] * 12))
    assert missing(tmp_path, 12) == [{1, 2, 3}] * 12
    not_asked = re.findall(r"round (\d+)/12: .*; not asked after repeated faults: 3\n", log(tmp_path))
    assert sorted({*range(1, 13)} - {int(t) for t in not_asked}) == [1, 2, 4, 8]
    assert time.monotonic() - began > 4 * 0.4


def test_after_the_quorum_the_others_have_a_grace_period(tmp_path):
    """Row: one client is slower than the others => after the quorum has replied, the server waits `grace` seconds for
    the other clients. If `grace` is 0, it waits until the deadline.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    first_poll = {}

    def fails(kind, t, client):
        since = time.monotonic() - first_poll.setdefault((kind, t, client), time.monotonic())
        slow = {(0, 3): 0.3, (1, 3): 99.0, (2, 2): 1.2, (2, 3): 1.6}  # in round 2 the quorum is late
        return "silent" if kind == "train.work" and since < slow.get((t, client), 0) else None

    grid.fails = fails
    began = time.monotonic()
    federation(tmp_path, FedSUM(), grid=grid, rounds=3, deadline=60.0, quorum=3, grace=1.0)
    assert missing(tmp_path, 3) == [set(), {3}, set()]
    assert "the round is repeated" not in log(tmp_path)
    assert "round 1: client 3 did not reply within 1 s of the quorum" in log(tmp_path)
    assert time.monotonic() - began < 10


class OneBehind(LocalGrid):
    """The SuperNode of client 1 uploads each reply only when the next message arrives."""

    def pull_messages(self, message_ids):
        pushed = [message.metadata.message_id for message in self.sent if message.metadata.dst_node_id == 101]
        return super().pull_messages([i for i in message_ids if i not in pushed[-1:]])


@pytest.mark.parametrize("algorithm", [FedSUM(), FedAWE()], ids=lambda algorithm: algorithm.name)
@pytest.mark.parametrize("grace", [0.0, 1.0])
def test_a_supernode_that_is_one_message_behind_still_takes_part(grace, algorithm, tmp_path):
    """Row: a client app is killed after its reply."""
    grid = OneBehind(tmp_path / "clients", algorithm)
    grid.keys = {100 + i: b"%d" % i for i in range(N)}
    keys = {key: node - 100 for node, key in grid.keys.items()}
    federation(tmp_path, algorithm, grid=grid, rounds=3, deadline=2.0, grace=grace, quorum=2, keys=keys)
    assert missing(tmp_path, 3) == [set()] * 3
    assert log(tmp_path).count("replied after a second message: 1") == 3
    reminders = [message for message in grid.sent if message.metadata.message_type == "query.hello"]
    assert {message.metadata.dst_node_id for message in reminders} == {101}
    assert len(reminders) == 3 * (2 if algorithm.name == "FedAWE" else 1)  # FedAWE has a message after the merge


def test_clients_that_reply_in_time_get_no_second_message(tmp_path):
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    federation(tmp_path, FedSUM(), grid=grid, rounds=3, deadline=20.0, grace=5.0)
    hellos = [message for message in grid.sent if message.metadata.message_type == "query.hello"]
    assert len(hellos) == N  # at the start


@pytest.mark.parametrize("method", ["PullMessages", "PullObject", "ConfirmMessageReceived", "PushMessages"])
def test_a_run_that_the_superlink_ended_is_stopped(method, tmp_path):
    grid = link_grid(tmp_path)
    original = getattr(grid.link, method)

    def revoked(request):
        if ledger_round(tmp_path) < 2:
            return original(request)
        request = httpx.Request("POST", "https://127.0.0.1:8000/v1/runtime")
        raise httpx.HTTPStatusError("401\nUnauthorized", request=request, response=httpx.Response(401, request=request))

    setattr(grid.link, method, revoked)
    with pytest.raises(httpx.HTTPStatusError):
        federation(tmp_path, FedSUM(), grid=grid, rounds=5, deadline=20.0)
    run = Run.read(tmp_path / "run")
    assert (run.state, run.round) == ("stopped", 2)
    assert run.reason == "the SuperLink ended the run, as by `flwr stop`; `flwr run` resumes the run"
    assert "cannot be read" not in log(tmp_path)  # it is no client's fault


def ledger_round(folder):
    return Run.read(folder / "run").round


def test_two_nodes_that_are_one_client_are_reported(tmp_path):
    """Row: two SuperNodes are the same client => the one that connected last gets the orders; the log warns. A
    SuperNode that died is listed beside its replacement for a minute.

    Row: there is no `client-keys`, with or without authentication => each SuperNode says itself which client it is. The
    log warns at every start.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    grid.nodes |= {200: 1}
    federation(tmp_path, FedSUM(), grid=grid, rounds=2)
    line = "SuperNodes 101 and 200 are both client 1: 200, which connected last, gets the orders"
    assert log(tmp_path).count(line) == 1
    asked = {message.metadata.dst_node_id for message in grid.sent if message.metadata.message_type == "train.work"}
    assert asked == {100, 200, 102, 103}
    assert "client ids are not verified: any SuperNode can claim to be any client; set client-keys" in log(tmp_path)


def test_a_key_is_for_one_client(tmp_path):
    """Row: one key is listed for two clients => refused at the start."""
    write_certs(tmp_path / "certs", 2, ["localhost"])
    key = (tmp_path / "certs" / "client-0.pub").read_text().strip()
    (tmp_path / "keys.toml").write_text(f'[clients]\n0 = "{key}"\n1 = "{key}"\n')
    with pytest.raises(InputError, match="client-keys = 1: has the key of client 0; each client needs its own"):
        read_client_keys(tmp_path / "keys.toml", 2)


def test_a_node_that_fails_to_say_who_it_is_is_not_asked_all_the_time(tmp_path):
    """Row: a SuperNode does not say which client it is => asked again after a deadline. It gets no orders until it
    answers.
    """
    grid = LocalGrid(tmp_path / "clients", FedSUM())
    grid.fails = lambda kind, t, client: "error" if client == 2 and kind == "query.hello" else None
    federation(tmp_path, FedSUM(), grid=grid, rounds=6, deadline=30)
    assert log(tmp_path).count("node 102 did not say which client it is: raised") == 1


def test_a_deadline_that_the_link_cannot_meet_is_refused(tmp_path):
    """Row: a round's messages do not fit the deadline => refused before the first round if `link-speed` is set.
    The log always says the speed that the deadline needs.
    """
    with pytest.raises(InputError, match=r"deadline = 2.0: too short: 6.4e-05 MB down and 3.2e-05 MB up take 10 s at"):
        federation(tmp_path, FedSUM(), deadline=2.0, link_speed=9.6e-6)
    assert "refused to start: deadline = 2.0: too short" in log(
        tmp_path
    )  # where an operator looks, because Flower keeps the exception
    federation(tmp_path, FedSUM(), rounds=1, deadline=2.0, link_speed=1.0)
    lines = log(tmp_path)
    assert "per round and client 6.4e-05 MB down, 3.2e-05 MB up: the deadline needs more than 4.8e-05 MB/s" in lines
    federation(tmp_path / "CR", FedSUMCR(), rounds=1, deadline=2.0)
    down = 8 * (4 + 1 + 4)  # x and E, and x^(0) in a client's first round
    assert f"per round and client {down / 1e6:.2g} MB down" in log(tmp_path / "CR")
