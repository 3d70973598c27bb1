"""How large a reply may be, and client text in a form that is safe to log."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

MB = 10**6
TEXT_LIMIT = 300
_ALLOWANCE = MB
"""bytes of a reply besides its vectors: step id, status, names, headers"""


class ReplyTooLarge(ValueError):
    """A reply exceeds a limit."""


@dataclass(frozen=True)
class ReplyLimits:
    """The largest reply that the server reads."""

    message: int
    """bytes on the network"""
    inflated: int
    """bytes of all vectors once decoded: a message may refer to the same bytes many times"""
    text: int = TEXT_LIMIT
    """characters of client text in one line of the log"""

    @classmethod
    def of(
        cls, uplink: Mapping[str, Tensor], message_mb: float = 0, inflated_mb: float = 0, text: int = TEXT_LIMIT
    ) -> "ReplyLimits":
        """Limits in MB. Without `message_mb`: twice the vectors of `uplink`, and 1 MB. Without `inflated_mb`: the same
        as on the network.
        """
        default = 2 * sum(value.numel() * value.element_size() for value in uplink.values()) + _ALLOWANCE
        message = int(message_mb * MB) or default
        return cls(message, int(inflated_mb * MB) or message, text)

    @property
    def objects(self) -> int:
        """The largest number of objects in a message. Flower pulls each object with a request of its own."""
        return 64 + self.message // 2**16

    def shown(self, text: object) -> str:
        """Client text on one line: control characters are escaped, and long text is cut."""
        whole = str(text)
        line = escaped(whole[: self.text])
        return line if len(whole) <= self.text else f"{line}... ({len(whole):,} characters)"


def escaped(text: str) -> str:
    """`text` without newlines, terminal codes or other characters that are not printable.

    >>> escaped("two\\nlines \\x1b[2J")
    'two\\\\nlines \\\\x1b[2J'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
