"""Faults and attacks as events of a random schedule, and how a failing schedule is shrunk."""

from dataclasses import replace
from random import Random

import torch
from flower_world import N, World

from fedsum import InputError
from fedsum.flower.protocol import ClientVersions


def ask(world, draw):
    world.orders += [(world.ledger, world.ledger.order(i)) for i in _some(draw) if world.ledger.eligible(i)]


def order_arrives(world, draw):
    """Late, twice, at any node of the client; the process may be killed while it saves."""
    if world.orders:
        app, order = _taken(world.orders, draw)
        fault = draw.choice([None] * 6 + ["full", "before", "after", "promoted"])
        reply = world.work(order, draw.randrange(2), fault)
        if reply and app in (world.ledger, world.old_app):
            world.replies.append((app, reply))


def reply_arrives(world, draw):
    if world.replies:
        app, reply = _taken(world.replies, draw)
        app.receive(reply)


def message_is_lost(world, draw):
    queue = draw.choice([world.orders, world.replies])
    if queue:
        queue.pop(draw.randrange(len(queue)))


def round_without_faults(world, draw):
    world.all_arrive(draw.randrange(2))
    world.close()


def deadline(world, draw):
    world.close(killed=draw.random() < 0.25)


def server_is_killed(world, draw):
    world.restart(world.checkpoints[-1])


def old_backup_of_the_server(world, draw):
    world.restart(draw.choice(world.checkpoints))


def settings_change_while_the_old_app_runs(world, draw):
    world.change_settings(draw.choice([1, 3]), draw.randrange(3))


def old_app_goes_on(world, draw):
    """It asks clients, and merges in its own memory. It cannot write to the run folder."""
    if world.old_app:
        world.orders += [(world.old_app, world.old_app.order(i)) for i in _some(draw) if world.old_app.eligible(i)]
        if draw.random() < 0.3:
            world.old_app.close_round()


def state_is_deleted(world, draw):
    draw.choice(draw.choice(world.nodes)).versions = ClientVersions()


def file_is_damaged(world, draw):
    """A damaged file counts as missing."""
    disk = draw.choice(draw.choice(world.nodes))
    disk.versions = replace(disk.versions, **{draw.choice(["merged", "pending"]): None})


def backup_of_a_client(world, draw):
    client = draw.randrange(N)
    world.backups[client].append(world.nodes[client][0].versions)


def old_backup_of_a_client(world, draw):
    client = draw.randrange(N)
    if world.backups[client]:
        world.nodes[client][0].versions = draw.choice(world.backups[client])


def disk_vanishes(world, draw):
    client = draw.randrange(N)
    world.spare[client].append(world.nodes[client][0])
    world.nodes[client][0] = world.disk()


def disk_returns(world, draw):
    client = draw.randrange(N)
    if world.spare[client]:
        disk = world.spare[client].pop()
        world.spare[client].append(world.nodes[client][0])
        world.nodes[client][0] = disk


def second_node_with_one_id(world, draw):
    """With an empty disk or a copy of the first node's; the first node may leave."""
    disks = world.nodes[draw.randrange(N)]
    if len(disks) == 1:
        disks.append(world.disk())
        disks[1].versions = draw.choice([ClientVersions(), disks[0].versions])
    else:
        disks.pop(draw.randrange(2))


def lie_that_must_not_count(world, draw):
    """A reply out of bounds, not finite, of another order, or about the client's state."""
    client = draw.randrange(N)
    ledger = world.ledger
    if not ledger.eligible(client):
        return
    reply = world.work(ledger.order(client), draw.randrange(2))
    lies = [{"status": "ahead", "serial": draw.randrange(10**6)}, {"order": "0" * 64}, {"version": "x"}]
    factors = [float("nan"), float("inf")] + [1e9] * bool(ledger.rules.norm_limit)
    if reply.vectors:
        # A version that no client has: what is merged of it by mistake is found missing.
        lies.append({"vectors": {name: value * draw.choice(factors) for name, value in reply.vectors.items()}})
    ledger.receive(replace(reply, **draw.choice(lies)))


def false_loss(world, draw):
    client = draw.randrange(N)
    if world.ledger.eligible(client):
        reply = world.work(world.ledger.order(client), draw.randrange(2))
        world.ledger.receive(replace(reply, status="lost", vectors={}))


def evict(world, draw):
    try:
        world.ledger.evict(draw.randrange(N))
    except InputError:
        return
    world.save()


def readmit(world, draw):
    evicted = world.ledger.state.evicted
    if evicted:
        world.ledger.readmit(draw.choice(evicted))
        world.save()


WEIGHTS = {
    ask: 6,
    order_arrives: 10,
    reply_arrives: 8,
    message_is_lost: 2,
    round_without_faults: 5,
    deadline: 6,
    server_is_killed: 1,
    old_backup_of_the_server: 1,
    settings_change_while_the_old_app_runs: 1,
    old_app_goes_on: 3,
    state_is_deleted: 1,
    file_is_damaged: 1,
    backup_of_a_client: 1,
    old_backup_of_a_client: 1,
    disk_vanishes: 1,
    disk_returns: 2,
    second_node_with_one_id: 1,
    lie_that_must_not_count: 1,
    false_loss: 0.5,
    evict: 0.5,
    readmit: 1,
}
EVENTS = {event.__name__: event for event in WEIGHTS}


def random_schedule(seed, length=100):
    """A list of (event, the seed of its choices)."""
    draw = Random(seed)
    names = draw.choices(list(EVENTS), list(WEIGHTS.values()), k=length)
    return [(name, draw.randrange(1000)) for name in names]


def gap_after(case, schedule):
    """The gap at rest after a schedule. Raises an AssertionError if the federation breaks before."""
    torch.manual_seed(0)
    world = World(case)
    for name, seed in schedule:
        EVENTS[name](world, Random(seed))
    return world.settle()


def failure(case, schedule):
    """Why the schedule fails; empty if it does not."""
    try:
        gap = gap_after(case, schedule)
    except Exception as error:  # any exception is a failure
        return repr(error)
    return "" if gap <= 1e-9 else f"gap {gap:.2g} at rest"


def shrunk(case, schedule):
    """A part of the schedule that still fails, from which no single event can be removed."""
    place = 0
    while place < len(schedule):
        shorter = schedule[:place] + schedule[place + 1 :]
        if failure(case, shorter):
            schedule, place = shorter, 0
        else:
            place += 1
    return schedule


def _some(draw):
    return sorted(draw.sample(range(N), draw.randint(1, N)))


def _taken(queue, draw):
    """A message of the queue, which stays in it now and then."""
    place = draw.randrange(len(queue))
    return queue[place] if draw.random() < 0.3 else queue.pop(place)
