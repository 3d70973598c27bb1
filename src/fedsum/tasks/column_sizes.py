"""A notice of unscaled columns: the numbers of a table as they were recorded, such as an income."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

_LARGE = 30.0
"""a logistic regression on a column of this size needs eta_l below 4 / 30^2 = 0.004"""
_RATIO = 1000.0
"""between the largest and the smallest column; the weights of the smallest hardly change"""
_SHOWN = 3
"""columns that the notice names"""


def warn_of_unscaled(inputs: Tensor, names: Sequence[str] | None) -> None:
    """Warns once if the columns of a table are large or differ much in size.

    The size of a column is the root mean square of its entries that are not 0. So a column of 0 and 1 has the size 1,
    however rare its ones are. Inputs of other shapes than [samples, columns] and integers are no table.
    """
    if inputs.dim() != 2 or not inputs.is_floating_point():
        return
    filled = torch.count_nonzero(inputs, dim=0)
    sizes = torch.linalg.vector_norm(inputs, dim=0, dtype=torch.float64) / filled.clamp(min=1).sqrt()
    columns = filled.nonzero()[:, 0].tolist()  # a column of zeros has no size
    if not columns:
        return
    by_size = sorted(columns, key=sizes.__getitem__, reverse=True)
    large, ends = [column for column in by_size if float(sizes[column]) > _LARGE], [by_size[-1], by_size[0]]
    if not large and float(sizes[ends[1]]) <= _RATIO * float(sizes[ends[0]]):
        return

    def shown(column: int) -> str:
        return f"column {column if names is None else repr(names[column])} {float(sizes[column]):.2g}"

    unshown = len(large) - _SHOWN
    more = f" and {unshown} more" if unshown > 0 else ""
    sizes_shown = ", ".join(map(shown, large[:_SHOWN] or ends))
    warnings.warn(
        f"unscaled inputs (root mean square: {sizes_shown}{more}): training may diverge or hardly progress; subtract"
        " the training rows' mean from each column and divide by their standard deviation, in the table or in"
        " Task(..., prepare=...)",
        stacklevel=3,
    )
