"""Validation of uplinks when they arrive."""

from ...algorithms import Message


class UplinkValidator:
    """Refuses uplinks with wrong names, shapes or types, or with NaN or infinity.

    Args:
      expected: an uplink with the right names, shapes and types; its values do not matter.
    """

    def __init__(self, expected: Message) -> None:
        self.expected = expected

    def refusal(self, uplink: Message) -> str | None:
        """Why the uplink is refused, in one line; None if it is valid."""
        if uplink.keys() != self.expected.keys():
            return f"holds {sorted(uplink)}, expected {sorted(self.expected)}"
        for name, expected in self.expected.items():
            value = uplink[name]
            if value.shape != expected.shape:
                return f"{name} has shape {list(value.shape)}, expected {list(expected.shape)}"
            if value.dtype != expected.dtype:
                return f"{name} is {value.dtype}, expected {expected.dtype}"
            if not bool(value.isfinite().all()):
                return f"{name} holds NaN or infinity"
        return None
