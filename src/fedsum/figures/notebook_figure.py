"""Figures that notebooks draw by themselves."""

import io

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A notebook shows it as a picture also if pyplot was never imported; of a plain Figure it shows only the name."""

    def _repr_png_(self) -> bytes:
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
