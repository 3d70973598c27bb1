"""Checks, before the first round, whether the messages of a round can be sent within the deadline."""

from ..algorithms import Message
from ..base.checks import InputError
from .protocol import Order
from .transport.reply_limits import MB


def check_link(order: Order, uplink: Message, deadline: float, link_speed: float) -> str:
    """One line on the link that the deadline needs. Raises an InputError if `link_speed` is too slow.

    Args:
      order: an order to a client.
      uplink: an uplink like those that clients send.
      deadline: seconds per round.
      link_speed: MB per second of the slowest client's link; 0: not known.
    """
    down = _megabytes(order.vectors) + (_megabytes({"start": order.start}) if order.start is not None else 0.0)
    up = _megabytes(uplink)
    needed = (down + up) / deadline
    if 0 < link_speed < needed:
        seconds = (down + up) / link_speed
        accepted = (
            f"too short: {down:.3g} MB down and {up:.3g} MB up take {seconds:.0f} s at {link_speed:g} MB/s, without any"
            " computation; use a longer deadline or a smaller model"
        )
        raise InputError("deadline", deadline, accepted)
    return f"per round and client {down:.3g} MB down, {up:.3g} MB up: the deadline needs more than {needed:.2g} MB/s"


def _megabytes(vectors: Message) -> float:
    return sum(value.numel() * value.element_size() for value in vectors.values()) / MB
