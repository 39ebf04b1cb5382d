"""The paper's own figures, to stand beside ours; percent as printed, fractions here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A row of the paper's main table; ``commented`` rows stand in its source only.

    ``kind`` is how the method prunes: in one train–prune–retrain cycle ("single-shot"), in many
    ("iterative"), or by training with another objective ("objective").
    """

    method: str
    pruned: float
    accuracy: float
    macs: float | None = None
    kind: str = "single-shot"
    commented: bool = False


BASELINES = {"vgg16": 0.9398, "resnet56": 0.9255, "resnet50": 0.7613}
"""Accuracy of the unpruned networks."""

SNACS: dict[str, tuple[Published, ...]] = {
    "vgg16": (Published("SNACS", 0.9616, 0.9106, 0.6785),),
    "resnet56": (
        Published("SNACS", 0.6859, 0.9338, 0.3761),
        Published("SNACS + sensitivity", 0.6896, 0.9341),
    ),
    "resnet50": (
        Published("SNACS", 0.5510, 0.7465, 0.4173),
        Published("SNACS", 0.5961, 0.7360, 0.4663),
        Published("SNACS", 0.6426, 0.7290, 0.5165),
        Published("SNACS", 0.6880, 0.7236, 0.5679),
    ),
}

_OBJECTIVE, _ITERATIVE = "objective", "iterative"

RIVALS: dict[str, tuple[Published, ...]] = {
    "vgg16": (
        Published("l1-norm", 0.64, 0.934, 0.3418),
        Published("Variational Pruning", 0.7334, 0.9318, 0.3929, _OBJECTIVE),
        Published("SSS", 0.738, 0.9302, 0.416, _OBJECTIVE),
        Published("GAL", 0.822, 0.9342, None, _OBJECTIVE, commented=True),
        Published("Try-and-Learn", 0.8271, 0.9167, None, _ITERATIVE, commented=True),
        Published("MINT", 0.8346, 0.9343),
        Published("Network Slimming", 0.8852, 0.938, 0.5094, _ITERATIVE),
        Published("X-Nets", 0.9233, 0.93, None, _OBJECTIVE),
        Published("Cascaded Pruning", 0.9352, 0.9297, None, _ITERATIVE, commented=True),
        Published("DCP", 0.9358, 0.9457, None, _ITERATIVE, commented=True),
        Published("Bayesian Compression", 0.945, 0.91, None, _OBJECTIVE),
        Published("RBP", 0.9746, 0.91, None, _OBJECTIVE, commented=True),
    ),
    "resnet56": (
        Published("l1-norm", 0.137, 0.9306, 0.2728),
        Published("Variational Pruning", 0.2049, 0.9226, 0.2017, _OBJECTIVE),
        Published("NISP", 0.426, 0.9301, 0.4361),
        Published("FSDP", 0.5, 0.9264),
        Published("MINT", 0.5701, 0.9302),
        Published("DHP", 0.589, 0.9294, None, _OBJECTIVE, commented=True),
        Published("OED", 0.6, 0.9229, None, _OBJECTIVE, commented=True),
        Published("GAL", 0.659, 0.9158, None, _OBJECTIVE, commented=True),
        Published("Paying Attention", 0.6705, 0.9334, None, _ITERATIVE, commented=True),
        Published("DCP", 0.7032, 0.9381, None, _ITERATIVE, commented=True),
        Published("Learning Compression", 0.8501, 0.9308, None, _ITERATIVE, commented=True),
        Published("Learning Compression", 0.9001, 0.9333, None, _ITERATIVE, commented=True),
        Published("Learning Compression", 0.95, 0.9249, None, _ITERATIVE, commented=True),
        Published("Learning Compression", 0.97, 0.9179, None, _ITERATIVE, commented=True),
    ),
    "resnet50": (
        Published("SSS", 0.3882, 0.7182, 0.4304, _OBJECTIVE),
        Published("NISP", 0.4382, 0.7199, 0.4401),
        Published("OED", 0.4737, 0.7122, None, _OBJECTIVE, commented=True),
        Published("MINT", 0.4962, 0.7105),
        Published("X-Nets", 0.5, 0.7285, 0.5, _OBJECTIVE),
        Published("DCP", 0.5145, 0.7495, None, _ITERATIVE, commented=True),
        Published("GAL", 0.5996, 0.6931, None, _OBJECTIVE, commented=True),
        Published("ThiNet", 0.6611, 0.6842, None, _ITERATIVE, commented=True),
        Published("Cascaded Pruning", 0.7207, 0.7253, None, _ITERATIVE, commented=True),
        Published("AutoML (AMC)", 0.8, 0.7611, None, _ITERATIVE, commented=True),
        Published("N2NSkip", 0.8, 0.7209, None, _OBJECTIVE, commented=True),
    ),
}
"""Other methods as the paper cites them. It says that single-shot and iterative ones differ but
marks none; ``kind`` is our reading of how each method works."""

TARGETS = {"vgg16": 0.9616, "resnet56": 0.686, "resnet50": 0.551}
"""What to remove so that ours stands beside the paper's row."""
