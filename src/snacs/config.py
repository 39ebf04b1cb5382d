"""Options by name: one flat frozen dataclass, checked when made, and the presets.

A user never has to set any of these. Researchers can set every one, from Python
(``snacs.plan(..., score="l2", allocation="uniform")``) and from the command line, and nothing in
the library branches on the preset: a preset is only a set of defaults.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from snacs.errors import InputError, closest

SCORES = ("information", "acmi", "mint", "l1", "l2", "l2-activation", "random")
SCALINGS = (
    "one",
    "weights",
    "weights-squared",
    "exp-weights",
    "activations",
    "weights-activations",
    "exp-weights-activations",
)
ALLOCATIONS = ("svm", "uniform", "global", "tempered", "manual")

_FLAGS = (
    "conditional", "curves", "sequential", "silence", "repair", "refine", "batchnorm", "logits",
)  # fmt: skip
_CHOICES: dict[str, tuple[str, ...]] = {
    "samples": ("positions", "pooled"),
    "score": SCORES,
    "view": ("child", "layer"),
    "support": ("full", "edges"),
    "hash": ("projection", "floor"),
    "scaling": SCALINGS,
    "allocation": ALLOCATIONS,
    "reading": ("absolute", "relative"),
    "sensitivity": ("absolute", "signed", "minmax"),
    "granularity": ("connection", "filter"),
    "ties": ("index", "value"),
    "budget": ("parameters", "macs"),
}


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise an error that lists the choices and names the closest one."""
    if value not in choices:
        raise InputError(
            f"{name!r} must be one of {', '.join(choices)}. "
            f"Got {value!r}.{closest(str(value), choices, most=1)}"
        )


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        raise InputError(f"{name!r} must be a number. Got {value!r}.")


def _check_at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name!r} must be a whole number of at least {least}. Got {value!r}.")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that may be chosen about a plan. ``Config.preset("default")`` is the start.

    Sampling
        count : calibration images that are kept, balanced over classes.
        samples : "positions" (a few random output positions per image) or "pooled" (one spatial
            mean per image, as the authors do).
        positions : output positions per image.
        batch : images per forward pass; fixed, so that results repeat.
    Scores (``snacs.scores``)
        score : information, acmi, mint, l1, l2, l2-activation or random.
        view : "child" (Y = the kernel's contribution, Z = the rest of the output) or "layer"
            (Y = filter j, Z = all other filters, hashed).
        support : "full" sums over all cells with expected mass, "edges" over observed ones.
        conditional : False drops Z: the unconditional AMI of eq. 1.
        hash : of a wide Z: "projection" (p-stable) or "floor" (every coordinate, then H2).
        directions : of the projection; None is ⌊log2(N/10)⌋, as the authors' programs do.
        width : bin width of X and Z, in mean standard deviations of the layer's outputs (child
            view) or of its variables (layer view).
        contribution_width : bin width of Y in the child view, in the same unit.
        shifts : random bin offsets that are averaged.
        groups : score this many groups of contiguous filters per side instead of single ones (G).
        scaling : φ.
        sequential : with score="information", choose each layer's connections in the network that
            is pruned up to it, instead of all in the dense one; masks of two targets are then not
            nested. Not with granularity="filter".
        doubt : where connections are chosen in that order, how much more than on the calibration
            images their inputs are taken to vary (``snacs.scores.doubt``); 0 believes the images.
        exchange : images on which kernels are then exchanged by the gradient of the divergence from
            the dense outputs (``snacs.network.exchanging``); 0 for not at all. It takes thousands,
            each looked at once, and as long and as much memory as training on them in batches of
            ``batch``. Not with granularity="filter".
    Limits (``snacs.limits``)
        allocation : svm, uniform, global (one score threshold), tempered (between these two) or
            manual.
        reading : of the SVM curves; "absolute" accuracy, or "relative" to the unpruned layer.
        cap : SVM accuracies above this count as this (0.8 in the paper's φ experiments).
        classes : at most this many classes go into a curve.
        curves : measure the SVM curves also where no limit depends on them, for the report.
        limits : γ by layer name, with allocation="manual" (others 0).
        threshold : δ; connections scoring above it stay, whatever the limit.
        threshold_from : name of the layer whose own limit sets δ.
    Protection
        shares : candidate shares of protected filters, tried per layer; empty for none. The share
            is chosen at the level that the target asks for, so masks of two targets are nested only
            where the same filters are protected.
        sensitivity : λ from "absolute", "signed" or "minmax" weights.
        protect : share by layer name, instead of the search.
    Selection
        granularity : "connection" or "filter".
        multiple : with granularity="filter", layers of 64 filters and more keep a multiple of this
            (of an eighth of their width, if that is less): libraries are fast at whole vectors and
            fall back to slow paths otherwise.
        ties : "index" (exact counts) or "value" (equal scores go together, as in the paper).
        coupling : power to which a score is multiplied by what is left on the other side of its
            filters, so that more of them die on both sides (``snacs.coupling``); 0 for not at all.
            Not where connections are chosen in order, nor with granularity="filter".
        silence : mask the BatchNorm of dead filters too.
    Repair, used by ``prune`` (``repair`` and ``ridge`` also by ``plan``)
        repair : least squares on the kept weights. Where connections are chosen in order, every
            layer is then solved before the next one is chosen.
        refine : least squares that knows what a ReLU cuts off and how filters are read together.
        batchnorm : re-estimate BatchNorm statistics where that helps.
        logits : after least squares, one step for the logits by scales and shifts of BatchNorm.
        ridge : of the least squares, relative to the mean diagonal of the Gram matrix.
        solved_share : how far to go from the masked weights to those that least squares solves.
            None: half of the way where kernels were exchanged, since such masks suit the dense
            weights, too, and all the way elsewhere.
    """

    count: int = 1000
    samples: str = "positions"
    positions: int = 4
    batch: int = 100

    score: str = "acmi"
    view: str = "child"
    support: str = "full"
    conditional: bool = True
    hash: str = "projection"
    directions: int | None = 4
    width: float = 0.5
    contribution_width: float = 0.1
    shifts: int = 4
    groups: int | None = None
    scaling: str = "one"
    sequential: bool = True
    doubt: float = 1.0
    exchange: int = 0

    allocation: str = "svm"
    reading: str = "relative"
    cap: float = 1.0
    classes: int = 50
    curves: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    threshold: float | None = None
    threshold_from: str | None = None

    shares: tuple[float, ...] = (0.1, 0.2)
    sensitivity: str = "absolute"
    protect: Mapping[str, float] = field(default_factory=dict)

    granularity: str = "connection"
    multiple: int = 16
    ties: str = "index"
    coupling: float = 0.0
    silence: bool = True

    repair: bool = True
    refine: bool = True
    batchnorm: bool = True
    logits: bool = True
    ridge: float = 1e-3
    solved_share: float | None = None

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if name != "budget":
                check_choice(name, getattr(self, name), choices)
        for name in ("limits", "protect"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(
                    f"{name!r} must map layer names to fractions. Got {getattr(self, name)!r}."
                )
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name!r} must be True or False. Got {getattr(self, name)!r}.")
        if not isinstance(self.shares, tuple | list):
            raise InputError(f"'shares' must be a list of fractions. Got {self.shares!r}.")
        for share in self.shares:
            _check_number("shares", share)
        object.__setattr__(self, "shares", tuple(float(share) for share in self.shares))
        for name in ("count", "positions", "batch", "shifts", "classes", "multiple"):
            _check_at_least(name, getattr(self, name), 2 if name in ("count", "classes") else 1)
        _check_at_least("exchange", self.exchange, 0)
        if self.solved_share is not None:
            _check_number("solved_share", self.solved_share)
            if not 0 < self.solved_share <= 1:
                raise InputError(
                    f"'solved_share' must lie in (0, 1], or be None. Got {self.solved_share!r}."
                )
        if self.exchange and self.granularity == "filter":
            raise InputError("'exchange' is for single connections, not for granularity='filter'.")
        for name in ("directions", "groups"):
            if getattr(self, name) is not None:
                _check_at_least(name, getattr(self, name), 1)
        for name in ("width", "contribution_width", "ridge"):
            value = getattr(self, name)
            _check_number(name, value)
            if not 0 < value < float("inf"):
                raise InputError(f"{name!r} must be a positive number. Got {value!r}.")
        _check_number("cap", self.cap)
        if not 0 < self.cap <= 1:
            raise InputError(f"'cap' must lie in (0, 1]. Got {self.cap!r}.")
        for share in (*self.shares, *self.protect.values()):
            _check_number("protect", share)
            if not 0 <= share < 1:
                raise InputError(f"A protected share must lie in [0, 1). Got {share!r}.")
        for name, limit in self.limits.items():
            _check_number(f"limits[{name!r}]", limit)
            if not 0 <= limit <= 1:
                raise InputError(f"The limit of layer {name!r} must lie in [0, 1]. Got {limit!r}.")
        if self.threshold is not None:
            _check_number("threshold", self.threshold)
        if self.threshold is not None and self.threshold_from is not None:
            raise InputError("Give 'threshold' or 'threshold_from', not both.")
        for name in ("coupling", "doubt"):
            value = getattr(self, name)
            _check_number(name, value)
            if not 0 <= value < float("inf"):
                raise InputError(f"{name!r} must not be negative. Got {value!r}.")
        if self.coupling and self.granularity == "filter":
            raise InputError("'coupling' is for single connections, not for granularity='filter'.")
        if self.coupling and self.score == "information" and self.sequential:
            raise InputError(
                "'coupling' chooses all layers together, and score='information' one after the "
                "other: give sequential=False, or another score, such as 'l2'."
            )
        if self.limits and self.allocation != "manual":
            raise InputError("'limits' needs allocation='manual'.")

    @property
    def way_solved(self) -> float:
        """``solved_share``, and what its None stands for."""
        if self.solved_share is not None:
            return self.solved_share
        return 0.5 if self.exchange else 1.0

    @staticmethod
    def preset(name: str = "default", **options: Any) -> Config:
        """A preset with some options changed.

        Where the preset is "tempered", whole filters (``granularity="filter"``) are shared out
        uniformly unless told otherwise.

        >>> Config.preset("paper").support
        'edges'
        >>> Config.preset("default", score="l2", allocation="uniform").score
        'l2'
        """
        check_choice("preset", name, tuple(PRESETS))
        known = {f.name for f in fields(Config)}
        for option in options:
            if option not in known:
                raise InputError(f"There is no option {option!r}.{closest(option, known, most=1)}")
        chosen = PRESETS[name]
        if options.get("granularity") == "filter" and chosen.allocation == "tempered":
            # Measured for single connections only; a stream of filters runs through many layers.
            options = {"allocation": "uniform", **options}
        return replace(chosen, **options)

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types, for keys and reports."""
        values = asdict(self)
        values["shares"] = list(self.shares)
        values["limits"] = dict(self.limits)
        values["protect"] = dict(self.protect)
        return values

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Config:
        return Config(**dict(values))


@dataclass(frozen=True, kw_only=True)
class Goal:
    """How far to prune: a fraction of weights or MACs, or a tolerated loss of SVM accuracy."""

    target: float | None = None
    tolerance: float | None = None
    budget: str = "parameters"

    def __post_init__(self) -> None:
        check_choice("budget", self.budget, _CHOICES["budget"])
        for name in ("target", "tolerance"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name))
        if self.target is not None and self.tolerance is not None:
            raise InputError("Give 'target' or 'tolerance', not both.")
        if self.target is not None and not 0 < self.target < 1:
            raise InputError(
                "'target' is the fraction to remove and must lie strictly between 0 and 1, "
                f"0.7 for 70 %. Got {self.target!r}."
            )
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise InputError(
                "'tolerance' is the fraction of SVM accuracy that may be lost and must lie in "
                f"[0, 1), 0.01 for 1 %. Got {self.tolerance!r}."
            )


PRESETS: dict[str, Config] = {
    # What measures best at equal sparsity (docs/results.md): the joint score, chosen layer after
    # layer, more of the layers that carry little, nobody protected.
    "default": Config(score="information", allocation="tempered", curves=True, shares=()),
    "paper": Config(
        samples="pooled",
        allocation="svm",
        support="edges",
        view="layer",
        directions=None,
        width=1.0,
        shifts=1,
        scaling="exp-weights",
        reading="absolute",
        shares=(0.1, 0.2, 0.3, 0.5),
        sensitivity="signed",
        ties="value",
        silence=False,
        repair=False,
        batchnorm=False,
    ),
}
