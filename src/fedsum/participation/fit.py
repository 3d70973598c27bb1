"""Fits of `Markov` and `Diurnal` to a recorded schedule, by maximum likelihood."""

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..base.checks import InputError
from ..base.keyed import Purpose, rng
from .diurnal import Diurnal
from .markov import Markov
from .schedule import Ids, Schedule

_MOST_CLIENTS = 2000
"""clients from which the daily cycle is estimated"""
_ZONES = (1, 2, 3, 4, 6)
_PHASES = 64
_FEWEST_ROUNDS = 8


@dataclass(frozen=True)
class Fit:
    """A fitted schedule and its negative log-likelihood."""

    generator: Markov | Diurnal
    nats: float
    """negative log-likelihood per client and round; smaller is better"""


def fit(schedule: Schedule, rounds: int, seed: int = 0) -> list[Fit]:
    """The schedules `Markov` and `Diurnal` fitted to `rounds` rounds of another schedule, the better fit first.

    Markov: each client is a chain of its own, with the same two probabilities. Diurnal: clients are independent, with a
    probability that follows a cosine. More zones need a better fit: a penalty of log(zones) per client is added.
    """
    sets = [schedule.active(seed, t) for t in range(rounds)]
    _refuse_unfit(schedule.n, sets)
    fits = [_markov(schedule.n, sets)]
    if rounds >= _FEWEST_ROUNDS:
        fits.append(_diurnal(schedule.n, sets))
    return sorted(fits, key=lambda one: one.nats)


def _refuse_unfit(n: int, sets: list[Ids]) -> None:
    """A fit needs clients that come or go: from other logs, any probabilities would be invented."""
    if len(sets) < 2:
        accepted = "at least 2; with a log of times shorten --round-length, or leave out --fit"
        raise InputError("fit to rounds", len(sets), accepted)
    active = sum(map(len, sets))
    if active in (0, n * len(sets)):
        who = "no client is ever active" if not active else "no client is ever absent"
        accepted = f"{who}; give a log in which clients come and go, or leave out --fit"
        raise InputError("fit to active clients per round", n if active else 0, accepted)


def _markov(n: int, sets: list[Ids]) -> Fit:
    pairs = list(pairwise(sets))
    was = sum(len(before) for before, _ in pairs)
    stayed = sum(len(np.intersect1d(before, now, assume_unique=True)) for before, now in pairs)
    joined = sum(len(now) for _, now in pairs) - stayed
    absent = n * len(pairs) - was
    # One observation more on either side keeps the probabilities inside (0, 1).
    on, off = (stayed + 0.5) / (was + 1), 1 - (joined + 0.5) / (absent + 1)
    generator = Markov(n, on, off)
    first, share = len(sets[0]), generator.share
    nats = -_bernoulli(first, n - first, share) - _bernoulli(stayed, was - stayed, on)
    return Fit(generator, (nats - _bernoulli(absent - joined, joined, off)) / (n * len(sets)))


def _diurnal(n: int, sets: list[Ids]) -> Fit:
    T = len(sets)
    chosen = rng(0, Purpose.SCHEDULE).permutation(n)[:_MOST_CLIENTS]
    column = np.full(n, -1)
    column[chosen] = np.arange(len(chosen))
    member = np.zeros((len(chosen), T))
    for t, ids in enumerate(sets):
        known = column[ids]
        member[known[known >= 0], t] = 1
    mean = min(max(float(np.mean([len(ids) for ids in sets])) / n, 1e-9), 1.0)
    best: Fit | None = None
    for period in _periods(member):
        wave = np.exp(-2j * math.pi * np.arange(T) / period)
        amplitude = (member - member.mean(1, keepdims=True)) @ wave
        for zones in _ZONES if n >= _ZONES[-1] else (1,):
            shifts = 2 * math.pi * (np.arange(_PHASES)[:, None] / _PHASES + np.arange(zones)) / zones
            # Per phase of zone 0: each client in the zone that suits it best.
            aligned = np.real(amplitude[:, None, None] * np.exp(1j * shifts)).max(axis=2)
            phase = int(aligned.sum(axis=0).argmax())
            zone = np.real(amplitude[:, None] * np.exp(1j * shifts[phase])).argmax(axis=1)
            swing = min(2 * float(aligned[:, phase].mean()) / T, mean, 1 - mean)
            p = mean + swing * np.cos(2 * math.pi * np.arange(T) / period - shifts[phase][:, None])
            p = np.clip(p, 0.5 / (n * T), 1 - 0.5 / (n * T))
            active = np.stack([member[zone == z].sum(axis=0) for z in range(zones)])
            size = np.bincount(zone, minlength=zones)[:, None]
            likelihood = float((active * np.log(p) + (size - active) * np.log1p(-p)).sum())
            nats = -likelihood / member.size + math.log(zones) / T
            if best is None or nats < best.nats:
                trough = max(0.0, mean - swing)
                best = Fit(Diurnal(n, max(mean + swing, trough), trough, round(period, 2), zones), nats)
    assert best is not None
    return best


def _periods(member: NDArray[np.float64]) -> list[float]:
    """The periods with the most power over all clients, from 3 rounds to half the record."""
    T = member.shape[1]
    grid = T / np.linspace(2, T / 3, 4 * T)
    waves = np.exp(-2j * math.pi * np.arange(T)[:, None] / grid)
    power = (np.abs((member - member.mean(1, keepdims=True)) @ waves) ** 2).sum(axis=0)
    total = member.sum(axis=0) - member.sum() / T
    together = np.abs(total @ waves) ** 2
    return [float(grid[values.argmax()]) for values in (power, together)]


def _bernoulli(yes: int, no: int, p: float) -> float:
    """The log-likelihood of as many successes and failures; 0 log 0 = 0."""
    return (yes * math.log(p) if yes else 0.0) + (no * math.log1p(-p) if no else 0.0)
