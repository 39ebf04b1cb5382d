"""How far each layer may be pruned, and which filters must not be touched."""

from snacs.limits.allocate import allocate
from snacs.limits.curves import measure_curves
from snacs.limits.protection import choose_share, protected_rows, sensitivity
from snacs.limits.task import Allocation, check_goal

__all__ = [
    "Allocation",
    "allocate",
    "check_goal",
    "choose_share",
    "measure_curves",
    "protected_rows",
    "sensitivity",
]
