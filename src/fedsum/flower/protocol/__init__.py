"""The commit protocol: its messages (`messages`), the server's side and the client's side.

The server's side is `ledger`, which merges the replies of one `attempt` into the `server_state`. The client's side is
`client_protocol`. Both work without Flower, network and disk: `fedsum.flower.transport` carries the messages, and
`fedsum.flower.storage` saves the states.
"""

from .client_protocol import answer
from .ledger import Ledger, RoundOutcome
from .membership import STRIKES
from .merge_rules import MergeRules
from .messages import Order, Reply, Status, StepId, Terms
from .server_state import ServerState
from .versions import ClientVersions, StateVersion

__all__ = [
    "STRIKES",
    "ClientVersions",
    "Ledger",
    "MergeRules",
    "Order",
    "Reply",
    "RoundOutcome",
    "ServerState",
    "StateVersion",
    "Status",
    "StepId",
    "Terms",
    "answer",
]
