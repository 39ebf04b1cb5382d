"""The steps of pruning after the plan: repair and measurement, kept in the run folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors.torch import load_file, save
from torch import Tensor, nn

from snacs.files import read_json, write_file, write_json
from snacs.jobs import Images, Job, digest_of, fingerprint
from snacs.network.batches import Forward
from snacs.network.cost import Accuracy, accuracy
from snacs.network.repair import RepairReport, RepairStep, repair_
from snacs.network.sequential import LayerRepair
from snacs.plans import Plan
from snacs.reporting.progress import Watch
from snacs.store import Run, key_of
from snacs.training import ProgressRow


def repaired_(
    job: Job, made: Plan, model: nn.Module, bn_images: Images | None
) -> RepairReport | None:
    """Repair the masked model, or read the repaired weights from the run folder."""
    config = job.config
    if not (config.repair or config.batchnorm):
        return None
    key = key_of(plan=job.plan_key, bn=digest_of(bn_images)[0])

    def fill(folder: Path) -> None:
        report = repair_(
            model,
            job.calibration.batches,
            structure=made.structure,
            forward=job.forward,
            dense=job.model,
            ridge=config.ridge,
            least_squares=config.repair,
            refine=config.refine,
            batchnorm=config.batchnorm,
            logits=config.logits,
            solved_share=config.way_solved,
            bn_images=bn_images,
            progress=lambda done, total, name: job.watch("repair", done, total, name),
            compared=lambda done, total: job.watch("outputs", done, total),
        )
        write_file(folder / "masked.safetensors", save(_plain(model.state_dict())))
        write_json(folder / "repair.json", asdict(report))

    folder = job.run.once("repaired", key, fill)
    model.load_state_dict(load_file(folder / "masked.safetensors"))
    facts = read_json(folder / "repair.json")
    return RepairReport(
        tuple(LayerRepair(**row) for row in facts["layers"]),
        tuple(RepairStep(**row) for row in facts["steps"]),
        facts["images"],
        tuple(facts["notes"]),
    )


@dataclass
class Meter:
    """Measures accuracy once per set of weights and keeps it in the run folder."""

    run: Run
    images: Images | None
    watch: Watch
    forward: Forward | None

    def __post_init__(self) -> None:
        self.seen: dict[str, Accuracy] = {}
        self._digest, self._count = digest_of(self.images)

    def measure(self, name: str, model: nn.Module) -> None:
        if self.images is None:
            return
        images = self.images

        def fill(folder: Path) -> None:
            found = accuracy(
                model,
                images,
                forward=self.forward,
                progress=lambda done: self.watch(f"test {name}", done, self._count),
            )
            write_json(folder / "accuracy.json", found._asdict())

        key = key_of(weights=fingerprint(model), test=self._digest)
        folder = self.run.once(f"accuracy/{name}", key, fill)
        self.seen[name] = Accuracy(**read_json(folder / "accuracy.json"))


def epochs_watch(watch: Watch, stage: str) -> Callable[[ProgressRow], None]:
    """Turn the rows of a training loop into progress."""
    most = 1

    def show(row: ProgressRow) -> None:
        nonlocal most
        most = batches = max(most, row.batches or 1)  # parts of an epoch differ by a batch
        inside = row.batch if row.batches and row.batch < row.batches else batches
        done = (row.epoch - 1) * batches + inside
        words = f"epoch {row.epoch}/{row.epochs}, loss {row.loss:.3f}, accuracy {row.accuracy:.1%}"
        if row.validation is not None:
            words += f", validation {row.validation:.1%}"
        watch(stage, done, row.epochs * batches, words)

    return show


def _plain(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors that own their memory: safetensors refuses shared ones."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
