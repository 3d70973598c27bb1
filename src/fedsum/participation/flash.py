"""FLASH's logs of phones, `state_traces.json`: events of screen, charger and network.

Yang et al., "Characterizing Impacts of Heterogeneity in Federated Learning upon Large-Scale Smartphone Data", WWW 2021.
The file is an object from the phone to {"messages": "2020-01-29 00:00:00\\tscreen_off\\n...", ...}. A phone is
available while it is idle (screen off or locked), charging and on Wi-Fi.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..base.checks import InputError
from .availability_records import ClientRecord

_SWITCHES = {
    "battery_charged_on": ("charging", True),
    "battery_charged_off": ("charging", False),
    "screen_on": ("screen_off", False),
    "screen_off": ("screen_off", True),
    "screen_lock": ("locked", True),
    "screen_unlock": ("locked", False),
    "phone_on": ("powered", True),
    "phone_off": ("powered", False),
    "wifi": ("wifi", True),
    **dict.fromkeys(("2g", "3g", "4g", "5g"), ("wifi", False)),
}
_IGNORED = ("unknown", "battery_low", "battery_okay")
"""events that say nothing about idle, charging or Wi-Fi. An unknown network is not the absence of Wi-Fi: the last known
network stays"""


def read_flash(path: Path) -> tuple[list[ClientRecord], list[str]]:
    """The records of the phones in the order of the file, and the phones whose availability never becomes known."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("trace", str(path), f"a readable JSON file ({error})") from None
    if not isinstance(content, dict) or not content:
        raise InputError("trace", str(path), 'an object of phones, each with "messages"')
    records, unknown = [], []
    for phone, log in content.items():
        messages = log.get("messages") if isinstance(log, dict) else None
        if not isinstance(messages, str):
            raise InputError(f"{path} phone {phone!r}", log, 'an object with "messages", a string of events')
        record = _record(phone, list(_events(f"{path} phone {phone!r}", messages)))
        if record is None:
            unknown.append(phone)
        else:
            records.append(record)
    return records, unknown


def _events(place: str, messages: str) -> Iterator[tuple[float, str]]:
    """Time in seconds since 1970 and event of each line, in the order of their times."""
    events = []
    for number, line in enumerate(messages.splitlines(), start=1):
        if not line.strip("\0 \t"):
            continue
        moment, _, event = line.strip("\0 ").partition("\t")
        try:
            time = datetime.fromisoformat(moment.strip()).replace(tzinfo=UTC).timestamp()
        except ValueError:
            raise InputError(f"{place} line {number}", line, "a time, a tab and an event") from None
        event = event.strip().lower()
        if event not in _SWITCHES and event not in _IGNORED and not event.endswith("%"):
            raise InputError(f"{place} line {number}", event, f"one of {', '.join((*_SWITCHES, *_IGNORED))}, or a %")
        events.append((time, event))
    yield from sorted(events, key=lambda pair: pair[0])


def _record(phone: str, events: list[tuple[float, str]]) -> ClientRecord | None:
    """The record from the first event after which availability is known, to the last event; None if never known."""
    state: dict[str, bool] = {}
    available: list[tuple[float, float]] = []
    start = since = None
    for time, event in events:
        if event in _SWITCHES:
            switch, value = _SWITCHES[event]
            state[switch] = value
        now = _available(state)
        if start is None and now is not None:
            start = time
        if now and since is None:
            since = time
        elif not now and since is not None:
            available.append((since, time))
            since = None
    if start is None or events[-1][0] <= start:
        return None
    if since is not None:
        available.append((since, events[-1][0]))
    return ClientRecord(phone, start, events[-1][0], [pair for pair in available if pair[0] < pair[1]])


def _available(state: dict[str, bool]) -> bool | None:
    """Whether the phone is available; None if the events so far do not say."""
    screen: Any = state.get("screen_off", False) or state.get("locked", False)
    idle = screen if "screen_off" in state or "locked" in state else None
    parts = (idle, state.get("charging"), state.get("wifi"), state.get("powered", True))
    if False in parts:
        return False
    return None if None in parts else True
