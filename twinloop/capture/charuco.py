"""ChArUco boards: a chessboard with a tag in every white square, as OpenCV defines it."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from twinloop.capture import families
from twinloop.capture.families import Family


class Charuco(BaseModel):
    """A ChArUco board; its board frame has the origin in the middle of the chessboard."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    columns: int = Field(ge=2, le=100)
    """Squares across."""
    rows: int = Field(ge=2, le=100)
    """Squares down."""
    square: Annotated[float, Field(gt=0.001, lt=5.0)]
    """Edge of a chessboard square, m (above 5 it is surely in millimetres)."""
    marker: Annotated[float, Field(gt=0.001, lt=5.0)]
    """Edge of a tag's black square, m."""
    dictionary: Family = "aruco_5x5_250"
    """Family of the tags."""
    legacy: bool = False
    """Layout of OpenCV before 4.6: with an even number of rows the first square is white."""

    @model_validator(mode="after")
    def _sound(self) -> Charuco:
        if not self.marker < self.square:
            raise ValueError(
                f"marker {self.marker} m must be smaller than square {self.square} m; are both in "
                "metres?"
            )
        needed, held = len(self.white_squares()), families.count(self.dictionary)
        if needed > held:
            raise ValueError(
                f"{self.columns} x {self.rows} squares need {needed} tags, {self.dictionary} has "
                f"{held}"
            )
        return self

    def white_squares(self) -> NDArray[np.int64]:
        """Column and row (n, 2) of the squares that hold a tag, in the order of their ids."""
        # The square in the first corner is black, but for the old layout with even rows.
        odd = 0 if self.legacy and self.rows % 2 == 0 else 1
        row, column = np.indices((self.rows, self.columns))
        at = np.argwhere((row + column) % 2 == odd)
        return np.ascontiguousarray(at[:, ::-1])

    def black_squares(self) -> NDArray[np.int64]:
        """Column and row (n, 2) of the squares without a tag."""
        full = np.ones((self.rows, self.columns), bool)
        white = self.white_squares()
        full[white[:, 1], white[:, 0]] = False
        return np.ascontiguousarray(np.argwhere(full)[:, ::-1])

    def centres(self, squares: NDArray[np.int64]) -> NDArray[np.float64]:
        """Centres (n, 2) m of squares (n, 2) in the board frame: x right, y up."""
        middle = (np.array([self.columns, self.rows]) - 1) / 2
        flip = np.array([self.square, -self.square])
        return np.asarray((squares - middle) * flip, dtype=np.float64)
