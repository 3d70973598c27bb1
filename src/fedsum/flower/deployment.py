"""The settings of a deployment: a RunSpec, and the settings that only a deployment has.

They are read from [tool.flwr.app.config] in the app's pyproject.toml and from `flwr run --run-config`. Names are those
of a run's settings, with hyphens for underscores.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..algorithms import Algorithm, Message
from ..base.checks import InputError, integer, nearest, real
from ..base.toml_values import Table
from ..participation import Schedule
from ..spec import DEPLOYMENT, RunSpec, ScheduleSpec, TaskSpec, parse_algorithm
from ..training import OPTIONS, Options, Rate
from .protocol import MergeRules
from .transport.reply_limits import TEXT_LIMIT, ReplyLimits

ONLINE = "online"
"""the schedule's name if none is given: all clients that are online take part"""
USED_OPTIONS = (
    *("rounds", "local_steps", "eta_l", "eta_g", "batch_size", "clip_norm", "weight_decay", "seed"),
    *("eval_every", "eval_last"),
)
"""options of a run that a deployment uses"""
_TABLES = ("algorithm", "schedule", "eta_l")
"""tables that are settings; all others belong to the app"""
_RECORDED = ("deadline", "grace", "link_speed", "message_limit", "inflated_limit", "text_limit")
"""settings of the transport that config.toml records"""
FREE_RULES = (*_RECORDED, "quorum", "norm_limit")
"""settings of the table `deployment` that may change when a run is resumed"""
_RULES = tuple(rule.name for rule in fields(MergeRules))


def _setting(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class Deployment:
    """All settings of the server app."""

    spec: RunSpec
    rules: MergeRules
    schedule: Schedule | None = None
    """made from the spec; None: all clients that are online take part"""
    folder: str = _setting("fedsum-run", "the run folder on the server's machine; a run in it is resumed")
    deadline: float = _setting(60.0, "seconds per round; later replies are not merged")
    grace: float = _setting(
        0.0, "seconds to wait for the other clients after the quorum is reached; 0: until the deadline"
    )
    link_speed: float = _setting(
        0.0,
        "MB per second of the slowest client's link; a deadline that is too short for it is refused; 0: not checked",
    )
    message_limit: float = _setting(
        0.0, "largest reply on the network, in MB; 0: twice the bytes of an uplink's vectors, plus 1 MB"
    )
    inflated_limit: float = _setting(
        0.0,
        "largest reply once decoded, in MB: decoded vectors may be much larger than the message; 0: as `message-limit`",
    )
    text_limit: int = _setting(TEXT_LIMIT, "characters of client text in one line of the log; the rest is cut")
    client_keys: str = _setting(
        "", "path of the `clients.toml` that `fedsum flower certs` writes; if empty, client ids are not verified"
    )

    def __post_init__(self) -> None:
        real("deadline", self.deadline, above=0)
        for name in ("grace", "link_speed", "message_limit", "inflated_limit"):
            real(name.replace("_", "-"), getattr(self, name), low=0)
        integer("text-limit", self.text_limit, low=0)
        if hasattr(self.schedule, "dispatch"):
            raise InputError(
                "schedule", type(self.schedule).__name__, "a schedule of rounds: Flower's clients reply in time"
            )

    @classmethod
    def parse(cls, config: Mapping[str, Any]) -> "Deployment":
        """From Flower's flat configuration, in which the key `name` of [algorithm] is "algorithm.name".

        Called on the server only: a trace that the schedule names is on the server's machine.
        """
        table = _nested(config)
        own_settings = {name: table.pop(name) for name in _OWN_SETTINGS if name in table}
        rules = MergeRules(**{name: table.pop(name) for name in _RULES if name in table})
        n = integer("clients", table.pop("clients", None), low=1)
        algorithm = parse_algorithm(table.pop("algorithm"))
        schedule_spec = _schedule_spec(table.pop("schedule", {}), n)
        spec = RunSpec(TaskSpec("flower", {"clients": n}), algorithm, schedule_spec, Options.parse(table))
        schedule = None if schedule_spec.name == ONLINE else schedule_spec.make(n)
        return cls(spec, rules, schedule, **own_settings)

    @property
    def clients(self) -> int:
        """N, all clients, online or not."""
        return int(self.spec.task.fields["clients"])

    def replaced(self, algorithm: Algorithm | None, schedule: Schedule | None, eta_l: Rate | None) -> "Deployment":
        """This deployment with the Python objects that the app gives instead of settings."""
        spec = self.spec
        if eta_l is not None:
            spec = replace(spec, options=replace(spec.options, eta_l=eta_l))
        if algorithm is not None:
            spec = replace(spec, algorithm=algorithm, algorithm_table=None)
        if schedule is None:
            return replace(self, spec=spec)
        schedule_spec = ScheduleSpec.of(schedule, spec.options.rounds, spec.options.seed)
        return replace(self, spec=replace(spec, schedule=schedule_spec), schedule=schedule)

    def dump(self) -> Table:
        """For config.toml: the settings of the run, and a table of the settings that only a deployment has."""
        unused = [option.name for option in OPTIONS if option.name not in USED_OPTIONS]
        run = {key: value for key, value in self.spec.dump().items() if key not in unused}
        own_settings = {name: getattr(self, name) for name in _RECORDED}
        return {**run, DEPLOYMENT: {**own_settings, **dataclasses.asdict(self.rules)}}

    def limits(self, uplink: Message) -> ReplyLimits:
        """The largest reply, for uplinks like this one."""
        return ReplyLimits.of(uplink, self.message_limit, self.inflated_limit or self.message_limit, self.text_limit)


_REQUIRED = ("clients", "rounds", "local_steps", "eta_l")
_OWN_SETTINGS = tuple(setting.name for setting in fields(Deployment) if setting.metadata)
SETTINGS = ("clients", *USED_OPTIONS, *_RULES, *_OWN_SETTINGS)


def setting_rows() -> list[dict[str, str]]:
    """One row per setting, for `fedsum flower settings` and the documentation's table.

    >>> [row["name"] for row in setting_rows()][:3]
    ['clients', '[algorithm]', '[schedule]']
    """
    options = [option for option in OPTIONS if option.name in USED_OPTIONS]
    own_settings = [setting for setting in fields(Deployment) if setting.metadata]
    rows = [
        {
            "name": "clients",
            "default": "required",
            "doc": "N, the number of all clients, online or not; cannot be changed later",
        },
        {"name": "[algorithm]", "default": "FedSUM", "doc": "a table: `name`, and the algorithm's fields"},
        {
            "name": "[schedule]",
            "default": "",
            "doc": "a table: `name`, and the schedule's fields; without it, all clients that are online are asked",
        },
    ]
    for setting in (*options, *fields(MergeRules), *own_settings):
        default = "required" if setting.name in _REQUIRED else "" if setting.default is None else str(setting.default)
        rows.append({"name": setting.name.replace("_", "-"), "default": default, "doc": setting.metadata["doc"]})
    return rows


def configured_algorithm(config: Mapping[str, Any]) -> Algorithm:
    """The algorithm that the configuration names. A client needs no other setting."""
    return parse_algorithm(_nested(config)["algorithm"])


def _schedule_spec(table: Mapping[str, Any], n: int) -> ScheduleSpec:
    if not table.get("name"):
        return ScheduleSpec(ONLINE, {}, n)
    if str(table["name"]).lower() == "trace":  # clients of the deployment may be missing from the trace
        table = {"clients": n, **table}
    return ScheduleSpec.parse(table, n)


def _nested(config: Mapping[str, Any]) -> Table:
    """Flower's flat keys as tables, with underscores for hyphens. The app's own tables are left out."""
    table: Table = {}
    for key, value in config.items():
        head, dot, name = (part.replace("-", "_") for part in key.partition("."))
        if not dot and head in SETTINGS:
            table[head] = value
        elif dot and head in _TABLES:
            fields = table.setdefault(head, {})
            if not isinstance(fields, dict):
                raise InputError(key, value, f"{head.replace('_', '-')} is also given as a number; remove one")
            if value != "":  # Flower has no null value
                fields[name] = value
        elif not dot:
            settings = [setting.replace("_", "-") for setting in SETTINGS]
            raise InputError(key, value, f"no such setting; {nearest(key, settings)}")
    for name in _REQUIRED:
        if name not in table:
            raise InputError(name.replace("_", "-"), None, "is required in [tool.flwr.app.config]")
    if not table.get("algorithm"):
        table["algorithm"] = "FedSUM"
    return table
