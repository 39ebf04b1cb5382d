"""``plan`` and ``prune``: what the public API does, in order. No maths, no argument parsing."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from snacs.config import Config, Goal
from snacs.errors import InputError
from snacs.jobs import Images, fingerprint, make_job, repeatable, shape_of
from snacs.limits import check_goal
from snacs.network import masking
from snacs.network.batches import Forward
from snacs.network.calibration import gather
from snacs.network.cost import Accuracy, Cost, cost
from snacs.network.layers import Ignore, find_structure
from snacs.network.repair import RepairReport
from snacs.network.repair import repair_ as repair_network_
from snacs.planning import make_plan
from snacs.plans import Plan
from snacs.pruning import Meter, epochs_watch, repaired_
from snacs.reporting.progress import Watch, watching
from snacs.store import Run, key_of
from snacs.training import History, Recipe, train_
from snacs.training import recipe as recipe_of

Folder = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Pruned:
    """What :func:`prune` returns: the masked, repaired network and how it came about.

    ``accuracy`` holds the accuracy on ``test=`` before and after each step, ``history`` the epochs
    of retraining, ``notes`` what could not be done and what a recipe warns of. Each is empty where
    nothing was asked for.
    """

    model: nn.Module
    plan: Plan
    repair: RepairReport | None
    accuracy: dict[str, Accuracy]
    history: History | None
    notes: tuple[str, ...]

    @property
    def cost(self) -> Cost:
        """Weights, MACs and bytes of the pruned network, per layer and in total."""
        return cost(self.plan.structure, self.plan.masks)

    def facts(self) -> dict[str, Any]:
        """The outcome as plain JSON: what ``result.json`` keeps and reports show."""
        found = self.cost
        return {
            "pruned": found.pruned,
            "weights": found.weights,
            "weights_kept": found.weights_kept,
            "macs": found.macs,
            "macs_kept": found.macs_kept,
            "macs_compacted": found.macs_compacted,
            "bytes": found.dense_bytes,
            "bytes_csr": found.csr_bytes,
            "bytes_csr_narrow": found.csr_bytes_narrow,
            "index_bytes": list(found.index_bytes),
            "accuracy": {step: measured._asdict() for step, measured in self.accuracy.items()},
            "divergence": None
            if self.repair is None
            else {"masked": self.repair.before, "repaired": self.repair.after},
            "epochs": [] if self.history is None else [asdict(row) for row in self.history.rows],
            "layers": [asdict(row) for row in found.layers],
            "notes": list(self.notes),
            "facts": self.plan.facts,
        }


def plan(
    model: nn.Module,
    images: Images,
    *,
    target: float | None = None,
    tolerance: float | None = None,
    budget: str = "parameters",
    preset: str = "default",
    forward: Forward | None = None,
    ignore: Sequence[Ignore] = (),
    exchange_images: Images | None = None,
    run: Folder | Run | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool | Watch | None = None,
    **options: Any,
) -> Plan:
    """Decide which connections go. Never touches the model.

    Parameters
    ----------
    model : nn.Module
        Any trained network. It is read in eval mode; its own mode is restored.
    images : iterable of batches
        ``(x, y)`` pairs, or ``x`` alone: then the network's own predictions serve as labels.
        At most ``count=1000`` of them (balanced over classes) are kept.
    target : float
        Fraction of all Conv + Linear weights to remove, in (0, 1).
    tolerance : float
        Instead of a target: the fraction of its SVM accuracy that each layer may lose (with
        ``reading="absolute"``, as in preset "paper", each keeps an accuracy of 1 − tolerance). SVM
        curves then share it out: ``allocation="svm"``.
    budget : "parameters" or "macs"
        What the target counts.
    preset : "default" or "paper"
        Where the options start from; ``**options`` changes any of :class:`snacs.Config`.
    forward : function of model and batch
        For networks with several inputs or unusual outputs; returns class scores.
    ignore : names, patterns or module types
        Layers that are not to be pruned.
    exchange_images : iterable of batches
        With ``exchange=10_000``: images to exchange kernels on, best augmented as in training; they
        need no labels. Without them ``images`` are read once more.
    run : folder
        Keeps every stage, so that the same call resumes after an interruption. The same call means
        the same images in the same order: a loader that shuffles anew starts anew.
    jobs : int
        Worker processes; by default one per core where the work is worth it.
    progress : bool or function
        None shows bars in a terminal only.

    Returns
    -------
    Plan
    """
    goal = Goal(target=target, tolerance=tolerance, budget=budget)
    config = Config.preset(preset, **_for_goal(goal, options))
    check_goal(goal, config)
    with _opened(run) as folder, watching(progress) as watch:
        job = make_job(
            model, images, goal, config, folder, watch,
            forward=forward, ignore=ignore, seed=seed, jobs=jobs, exchange_images=exchange_images,
        )  # fmt: skip
        return make_plan(job)


def prune(
    model: nn.Module,
    images: Images,
    *,
    target: float | None = None,
    tolerance: float | None = None,
    budget: str = "parameters",
    preset: str = "default",
    forward: Forward | None = None,
    ignore: Sequence[Ignore] = (),
    bn_images: Images | None = None,
    exchange_images: Images | None = None,
    train: Any = None,
    recipe: Recipe | str = "short",
    validation: Images | None = None,
    test: Images | None = None,
    run: Folder | Run | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: bool | Watch | None = None,
    **options: Any,
) -> Pruned:
    """Plan, mask, repair and (with ``train=``) retrain a copy of the network.

    Takes what :func:`plan` takes, and besides:

    Parameters
    ----------
    bn_images : iterable of batches
        Augmented images for the BatchNorm statistics; they need no labels.
    train : iterable of batches, or function of the epoch that returns one
        Training images, read once per epoch of the recipe; none, and there is no retraining.
    recipe : Recipe or name
        How to retrain; ``snacs.RECIPES`` lists the names. Where it distills, ``model`` teaches.
    validation : iterable of batches
        Chooses the best epoch; without it the last epoch is the result.
    test : iterable of batches
        Measures accuracy before and after each step; never used for a choice.

    Returns
    -------
    Pruned
        ``model`` is a masked copy: the masks hold through any training loop,
        :func:`snacs.bake_` makes them permanent.
    """
    goal = Goal(target=target, tolerance=tolerance, budget=budget)
    config = Config.preset(preset, **_for_goal(goal, options))
    check_goal(goal, config)
    with _opened(run) as folder, watching(progress) as watch:
        job = make_job(
            model, images, goal, config, folder, watch,
            forward=forward, ignore=ignore, seed=seed, jobs=jobs, exchange_images=exchange_images,
        )  # fmt: skip
        made = make_plan(job)
        test, bn_images = repeatable(test), repeatable(bn_images)
        meter = Meter(folder, test, watch, forward)
        meter.measure("dense", model)
        pruned = copy.deepcopy(model)
        masking.bake_(pruned)  # an already pruned network is taken as it is
        notes = apply_(pruned, made)
        meter.measure("pruned", pruned)
        report = repaired_(job, made, pruned, bn_images)
        if report is not None:
            meter.measure("repaired", pruned)
        history = None
        if train is not None:
            chosen = recipe_of(recipe) if isinstance(recipe, str) else recipe
            key = key_of(
                start=fingerprint(pruned),
                recipe=chosen.as_dict(),
                seed=seed,
                data=shape_of(train),
                chosen=validation is not None,
            )
            history = train_(
                pruned,
                train,
                recipe=chosen,
                teacher=model if chosen.distillation else None,
                validation=validation,
                folder=folder.folder / "training" / key[:12],
                seed=seed,
                forward=forward,
                progress=epochs_watch(watch, "retrain"),
            )
            meter.measure("retrained", pruned)
        said = () if history is None else history.notes
        return Pruned(pruned, made, report, meter.seen, history, (*made.notes, *notes, *said))


def apply_(model: nn.Module, plan: Plan) -> list[str]:
    """Put the plan's masks on the model, as parametrizations; returns what could not be silenced.

    The dense weights stay underneath: :func:`snacs.remove_` brings them back,
    :func:`snacs.bake_` makes the zeros permanent.
    """
    masking.check_network(model)
    if not isinstance(plan, Plan):
        raise InputError(
            "'plan' must be a Plan: what snacs.plan made, or snacs.Plan.load(folder). Got "
            f"{type(plan).__name__}."
        )
    return masking.apply_(model, plan.masks, structure=plan.structure, silence=plan.config.silence)


def retrain_(
    model: nn.Module,
    train: Any,
    *,
    validation: Images | None = None,
    recipe: Recipe | str = "short",
    teacher: nn.Module | None = None,
    folder: Folder | None = None,
    seed: int = 0,
    forward: Forward | None = None,
    progress: bool | Watch | None = None,
) -> History:
    """Train a (masked) model in place: one explicit loop, or write your own.

    ``train`` is a re-iterable of batches or a function of the epoch that returns one; ``folder``
    keeps a checkpoint per epoch, and the same call goes on from the last of them. Pass the dense
    network as ``teacher`` if you have it: a recipe given by name does without if you have not.
    """
    if isinstance(recipe, str):
        recipe = recipe_of(recipe)
        recipe = replace(recipe, distillation=0.0) if teacher is None else recipe
    with watching(progress) as watch:
        return train_(
            model,
            train,
            recipe=recipe,
            validation=validation,
            teacher=teacher,
            folder=None if folder is None else Path(folder),
            seed=seed,
            forward=forward,
            progress=epochs_watch(watch, "retrain"),
        )


def repair_(
    model: nn.Module,
    images: Images,
    *,
    forward: Forward | None = None,
    dense: nn.Module | None = None,
    bn_images: Images | None = None,
    count: int = 1000,
    seed: int = 0,
    progress: bool | Watch | None = None,
    **options: Any,
) -> RepairReport:
    """Solve what is left of a masked model: its kept weights, then its BatchNorm.

    No labels, no training: every layer is made to return what the dense network returns; one
    backward pass tells how its filters are read together, one per class how the logits depend on
    the scales and shifts of BatchNorm, which are solved last. The dense weights are still there
    under the masks; after training, pass ``dense=``. After a plan with ``exchange=`` pass
    ``solved_share=0.5``, as :func:`prune` does by itself.
    """
    config = Config.preset("default", **options)
    with watching(progress) as watch:
        calibration = gather(
            images,
            model,
            count=count,
            batch=config.batch,
            seed=seed,
            forward=forward,
            classes_needed=False,
        )
        structure = find_structure(model, calibration.batches[0], forward=forward)
        return repair_network_(
            model,
            calibration.batches,
            structure=structure,
            forward=forward,
            dense=dense,
            ridge=config.ridge,
            least_squares=config.repair,
            refine=config.refine,
            batchnorm=config.batchnorm,
            logits=config.logits,
            solved_share=config.way_solved,
            bn_images=bn_images,
            progress=lambda done, total, name: watch("repair", done, total, name),
            compared=lambda done, total: watch("outputs", done, total),
        )


def _for_goal(goal: Goal, options: Mapping[str, Any]) -> dict[str, Any]:
    """A tolerance speaks about SVM accuracy, so unless told otherwise SVM curves share it out."""
    return {"allocation": "svm", **options} if goal.tolerance is not None else dict(options)


def _opened(run: Folder | Run | None) -> Run:
    return run if isinstance(run, Run) else Run(run)
