"""How to train: frozen recipes, the paper's two tables by name, and short ones that work.

The learning rate is a pure function of the position in the run, so a resumed run has no schedule
state to restore.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from snacs.config import check_choice
from snacs.errors import InputError

SCHEDULES = ("step", "cosine", "constant")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """SGD with a schedule.

    Attributes
    ----------
    epochs : int
    learning_rate : float
        The highest one, reached after the warm-up.
    batch : int
        Images per batch that the learning rate is meant for; the batches come from the user.
    schedule : "step", "cosine" or "constant"
        Step: times ``multiplier`` at each of ``milestones``, epochs counted from 0. Cosine: down to
        0 at the end.
    warmup : float
        Epochs, or part of one, over which the rate rises linearly from 0.
    label_smoothing : float
        As in ``torch.nn.functional.cross_entropy``.
    distillation : float
        Share of the teacher in the loss: (1 − d)·CE + d·T²·KL(teacher/T ‖ student/T).
    temperature : float
        T.
    start_share : float
        Share of the weights it began with in those it ends with: 0.5 is the mean of both. What a
        short training makes of a repaired network and the repaired network itself err in different
        ways, and their mean can be better than either (docs/research.md). A poor start is nothing
        to go back to: it is done only if the loss on 1,000 training images falls by it.
    clip : float, optional
        Largest norm of all gradients together.
    channels_last : bool
        Keep images and 4-D weights with the channels innermost while training. Same arithmetic,
        other rounding; faster on some processors and networks, slower on others.
    note : str
        What to know about the recipe; handed on in the history.
    """

    epochs: int
    learning_rate: float
    batch: int = 128
    schedule: str = "cosine"
    milestones: tuple[float, ...] = ()
    multiplier: float = 0.1
    warmup: float = 0.0
    momentum: float = 0.9
    weight_decay: float = 5e-4
    nesterov: bool = False
    label_smoothing: float = 0.0
    distillation: float = 0.0
    temperature: float = 4.0
    start_share: float = 0.0
    clip: float | None = None
    channels_last: bool = False
    note: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        check_choice("schedule", self.schedule, SCHEDULES)
        for name in ("epochs", "batch"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(f"{name!r} must be a whole number of at least 1. Got {value!r}.")
        _check_range("learning_rate", self.learning_rate, above=0.0)
        _check_range("temperature", self.temperature, above=0.0)
        _check_range("multiplier", self.multiplier, above=0.0)
        _check_range("weight_decay", self.weight_decay, least=0.0)
        _check_range("momentum", self.momentum, least=0.0, below=1.0)
        _check_range("label_smoothing", self.label_smoothing, least=0.0, most=1.0)
        _check_range("distillation", self.distillation, least=0.0, most=1.0)
        _check_range("start_share", self.start_share, least=0.0, below=1.0)
        _check_range("warmup", self.warmup, least=0.0, below=float(self.epochs))
        if self.clip is not None:
            _check_range("clip", self.clip, above=0.0)
        if self.nesterov and self.momentum == 0:
            raise InputError("'nesterov' needs a momentum above 0.")
        rising = all(a < b for a, b in zip(self.milestones, self.milestones[1:], strict=False))
        if not rising or any(m <= 0 for m in self.milestones):
            raise InputError(f"'milestones' must be rising epochs. Got {self.milestones!r}.")
        if self.milestones and self.schedule != "step":
            raise InputError("'milestones' needs schedule='step'.")

    def rate(self, position: float) -> float:
        """The learning rate at a position in epochs from the start.

        >>> recipe = Recipe(epochs=4, learning_rate=0.1, schedule="step", milestones=(2,))
        >>> recipe.rate(1.9), round(recipe.rate(2.0), 6)
        (0.1, 0.01)
        """
        if position < self.warmup:
            return self.learning_rate * position / self.warmup
        if self.schedule == "step":
            passed = sum(milestone <= position for milestone in self.milestones)
            return self.learning_rate * self.multiplier**passed
        if self.schedule == "cosine":
            share = (position - self.warmup) / (self.epochs - self.warmup)
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        return self.learning_rate

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**asdict(self), "milestones": list(self.milestones)}


def recipe(name: str = "short", **changes: Any) -> Recipe:
    """A named recipe with some options changed.

    >>> recipe("retrain-resnet56", epochs=2, milestones=(1,)).multiplier
    0.2
    """
    check_choice("recipe", name, tuple(RECIPES))
    known = {field.name for field in fields(Recipe)}
    for option in changes:
        if option not in known:
            raise InputError(f"A recipe has no option {option!r}. It has {', '.join(known)}.")
    return replace(RECIPES[name], **changes)


def scaled(recipe: Recipe, epochs: int) -> Recipe:
    """The same recipe over another number of epochs: milestones and warm-up move along.

    >>> scaled(RECIPES["retrain-resnet56"], 30).milestones
    (9.0, 18.0, 26.0)

    The start keeps its weight against one epoch: the longer the way, the smaller its share.

    >>> [round(scaled(RECIPES["brief"], epochs).start_share, 3) for epochs in (1, 3, 9)]
    [0.5, 0.25, 0.1]
    """
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise InputError(f"'epochs' must be a whole number of at least 1. Got {epochs!r}.")
    share = epochs / recipe.epochs
    return replace(
        recipe,
        epochs=epochs,
        milestones=tuple(milestone * share for milestone in recipe.milestones),
        warmup=recipe.warmup * share,
        start_share=recipe.start_share / (recipe.start_share + share * (1 - recipe.start_share)),
    )


def _check_range(
    name: str,
    value: float,
    *,
    least: float = -math.inf,
    above: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> None:
    if not (least <= value <= most and above < value < below) or not math.isfinite(value):
        bounds = [
            f"{word} {bound:g}"
            for word, bound in (
                ("at least", least),
                ("above", above),
                ("at most", most),
                ("below", below),
            )
            if math.isfinite(bound)
        ]
        raise InputError(f"{name!r} must be a number {' and '.join(bounds)}. Got {value!r}.")


_MOMENTUM = "The paper does not give the momentum; 0.9 is assumed."

RECIPES: dict[str, Recipe] = {
    "short": Recipe(
        epochs=10, learning_rate=0.01, schedule="cosine", warmup=0.5, weight_decay=5e-4,
        nesterov=True, distillation=0.9, start_share=1 / 11,
    ),
    "brief": Recipe(
        epochs=1, learning_rate=0.03, schedule="cosine", weight_decay=5e-4, distillation=0.9,
        start_share=0.5,
        note=(
            "Not the paper's: it retrains for 300 epochs from a rate of 0.1 in steps, with label "
            "smoothing. Few epochs have time for neither, so this one starts at 0.03, falls to 0, "
            "learns from the dense network as well as from the labels, and ends half way between "
            "the repaired network and what became of it, if the loss falls by that (after 1 epoch; "
            "n epochs: 1 part in n + 1)."
        ),
    ),
    "scratch": Recipe(
        epochs=20, learning_rate=0.1, schedule="cosine", warmup=1.0, weight_decay=5e-4,
        nesterov=True,
    ),
    "train-vgg16": Recipe(
        epochs=300, learning_rate=0.1, schedule="step", milestones=(90, 180, 260),
        multiplier=0.2, weight_decay=5e-4, note=_MOMENTUM,
    ),
    "train-resnet56": Recipe(
        epochs=300, learning_rate=0.01, schedule="step", milestones=(150, 225),
        multiplier=0.1, weight_decay=2e-4, note=_MOMENTUM,
    ),
    "retrain-vgg16": Recipe(
        epochs=300, learning_rate=0.1, schedule="step", milestones=(90, 180, 260),
        multiplier=0.1, weight_decay=5e-4, label_smoothing=0.35, note=_MOMENTUM,
    ),
    "retrain-resnet56": Recipe(
        epochs=300, learning_rate=0.1, schedule="step", milestones=(90, 180, 260),
        multiplier=0.2, weight_decay=5e-4, label_smoothing=0.15, note=_MOMENTUM,
    ),
    "retrain-resnet50": Recipe(
        epochs=100, batch=64, learning_rate=0.1, schedule="step", milestones=(30, 60, 90),
        multiplier=0.1, weight_decay=1e-4, label_smoothing=0.9,
        note=(
            "Label smoothing 0.9 is what the paper prints and probably a misprint for 0.1: it "
            "leaves a tenth of the label. Weight decay is printed as 0.0001/0.00003; the first is "
            f"used. {_MOMENTUM}"
        ),
    ),
}  # fmt: skip
"""``train-*`` and ``retrain-*`` are the paper's appendix tables as printed; ``short`` and
``brief`` retrain a repaired network in few epochs, with the dense network as teacher; ``scratch``
trains a small one from nothing."""
