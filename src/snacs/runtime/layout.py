"""Where the numbers of a tensor lie.

Two layouts, one addressing. *Pixels*: one image, a vector holds neighbouring pixels. *Images*: a
block of as many images as a vector has lanes, a vector holds one pixel of all of them. In both a
plane has zeros around it as wide as any kernel reaches, so that borders need no branches; the zeros
right of one row are those left of the next. Nobody ever writes to them. Pixels that fill whole
vectors have zeros above and below only: see :attr:`Geometry.wraps`.
"""

from __future__ import annotations

from dataclasses import dataclass

from snacs.runtime.vectors import LANES


def wraps_well(height: int, width: int) -> bool:
    """Whether rows without zeros between them make whole vectors."""
    whole = LANES % width == 0 if width < LANES else width % LANES == 0
    return whole and height * width >= LANES


@dataclass(frozen=True)
class Geometry:
    """A plane: ``unit`` floats per pixel, ``pad`` zeros around, ``row`` pixels from row to row."""

    height: int
    width: int
    pad: int
    unit: int
    row: int

    @staticmethod
    def of(height: int, width: int, pad: int, *, unit: int) -> Geometry:
        return Geometry(height, width, pad, unit, width + pad)

    @staticmethod
    def wrapped(height: int, width: int, pad: int) -> Geometry:
        """Rows of pixels without zeros between them."""
        return Geometry(height, width, pad, 1, width)

    @property
    def wraps(self) -> bool:
        """Whether a row's neighbours are the rows before and after it, and not zeros."""
        return self.pad > 0 and self.row == self.width

    @property
    def origin(self) -> int:
        """Offset of the first pixel, in floats."""
        offset = (self.pad * self.row + self.pad) * self.unit
        return -(-offset // 16) * 16 if self.wraps else offset

    @property
    def plane(self) -> int:
        """Floats per channel."""
        if self.wraps:
            after = (self.height + self.pad) * self.row + self.pad
            return -(-(self.origin + after) // 16) * 16
        pixels = (self.height + 2 * self.pad) * self.row + 2 * self.pad
        if self.unit > 1 or pixels == 1:
            return pixels * self.unit
        return -(-pixels // 16) * 16

    def offset(self, y: int, x: int) -> int:
        """Floats from the first pixel to this one."""
        return (y * self.row + x) * self.unit


class Arena:
    """Hands out places for tensors; a place that is free again goes to one of the same geometry.

    Only to one of the same geometry: the zeros around the planes must stay where they are.
    """

    def __init__(self) -> None:
        self.size = 0
        self._free: dict[Geometry, list[tuple[int, int]]] = {}
        self._taken: dict[str, tuple[Geometry, int, int]] = {}

    def take(self, name: str, geometry: Geometry, channels: int) -> int:
        """A place for a tensor, as an offset in floats."""
        free = self._free.setdefault(geometry, [])
        fitting = [place for place in free if place[1] >= channels]
        if fitting:
            offset, size = min(fitting, key=lambda place: place[1])
            free.remove((offset, size))
        else:
            offset, size = self.size, channels
            self.size += -(-channels * geometry.plane // 64) * 64
        self._taken[name] = (geometry, offset, size)
        return offset

    def give_back(self, name: str) -> None:
        geometry, offset, size = self._taken.pop(name)
        self._free[geometry].append((offset, size))

    @property
    def floats(self) -> int:
        """All of it, with room for vectors that begin in the last plane and end behind it."""
        return self.size + 64 * LANES
