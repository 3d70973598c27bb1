"""SCAFFOLD as it is not: two mistakes, the first of them seen in public code.

The runs beside it name this file by where it was then, carry/wrong.py.
"""

from fedsum import SCAFFOLD


class DividedByM(SCAFFOLD):
    """c += (1/m) sum d_i instead of (1/N): c is N/m times the mean of the c_i."""

    def merge(self, server, total, m, now):
        x, c, d = server["x"], server["c"], total["d"]
        return {"x": x - now.stride * (d / m + c), "c": c + d / m}


class UpdatedFirst(SCAFFOLD):
    """x moves along the mean of d_i plus the new c instead of the old: the round's d_i count 1/m + 1/N."""

    def merge(self, server, total, m, now):
        x, d = server["x"], total["d"]
        c = server["c"] + d / now.N
        return {"x": x - now.stride * (d / m + c), "c": c}
