"""Figures that notebooks draw by themselves."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure that notebooks draw even if pyplot was never imported. A plain Figure shows only its repr."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
