"""ImageNet's class indices for folders that are named by WordNet id."""

from __future__ import annotations

import re
from collections.abc import Sequence

from snacs.errors import InputError

CLASSES = 1000

IMAGENETTE: dict[str, tuple[int, str]] = {
    "n01440764": (0, "tench"),
    "n02102040": (217, "springer"),
    "n02979186": (482, "cassette player"),
    "n03000684": (491, "chain saw"),
    "n03028079": (497, "church"),
    "n03394916": (566, "French horn"),
    "n03417042": (569, "garbage truck"),
    "n03425413": (571, "gas pump"),
    "n03445777": (574, "golf ball"),
    "n03888257": (701, "parachute"),
}
"""The ten classes of Imagenette: index among ImageNet's 1000, and name."""


def are_wnids(names: Sequence[str]) -> bool:
    """Whether every folder is named by a WordNet id, as ImageNet's are."""
    return bool(names) and all(re.fullmatch(r"n\d{8}", name) for name in names)


def labels_of_wnids(names: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Index and name of each class folder, for a network with ImageNet's 1000 outputs.

    All 1000 folders: ImageNet numbers its classes in the order of their ids. Fewer: the place
    among them says nothing, so only the ten classes of Imagenette are known.
    """
    if len(names) == CLASSES:
        return {name: (index, name) for index, name in enumerate(sorted(names))}
    unknown = sorted(set(names) - IMAGENETTE.keys())
    if unknown:
        raise InputError(
            f"The network has {CLASSES} outputs and the folder {len(names)} classes, among them "
            f"{', '.join(unknown[:5])}, whose ImageNet index snacs does not know. Give all "
            f"{CLASSES} class folders, only folders among Imagenette's "
            f"({', '.join(IMAGENETTE)}), or an .npz file whose y holds the indices."
        )
    return {name: IMAGENETTE[name] for name in names}
