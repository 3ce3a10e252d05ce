"""The loop of a training: batches, losses, gradients, optimizer steps, averages, checkpoints. It knows no method."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import nn

from fv_core.errors import Cancelled, TrainError
from fv_core.request import CancelScope
from fv_core.training.batches import Batches
from fv_core.training.checkpoint import (
    Checkpoint,
    check_new,
    find_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from fv_core.training.config import NotFinite, Precision, RunConfig
from fv_core.training.contract import Batch, Loss, Mean
from fv_core.training.coverage import check_coverage
from fv_core.training.curves import draw_curves
from fv_core.training.data.preparing import Note
from fv_core.training.export import write_run_model
from fv_core.training.generators import generator_states, restore_generators
from fv_core.training.maths import learning_rate
from fv_core.training.offered import check_roles
from fv_core.training.provenance import provenance
from fv_core.training.ranks import Ranks
from fv_core.training.resuming import check_same, restored
from fv_core.training.runlog import RunLog, StepTold
from fv_core.training.setup import Setup
from fv_core.training.state import Role, TrainState, make_role
from fv_core.training.tensorboard import TensorBoard
from fv_core.training.validation import make_clips

Observer: TypeAlias = Callable[[StepTold], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a training came to: its folder, and the figures of its last step."""

    folder: Path
    steps: int
    metrics: Mapping[str, float]


class Trainer:
    """One run, from its settings to its last step.

    Args:
        config: its settings. setup: what they were made into.
        ranks: the processes that share it.
        observer: is told each step. note: is told in a sentence what a resumed run does otherwise than before.
        cancel: ends the run after the step at work.
        command: what was typed to begin it, for the recipe of its model.
    """

    def __init__(
        self,
        config: RunConfig,
        setup: Setup,
        *,
        ranks: Ranks | None = None,
        observer: Observer | None = None,
        note: Note | None = None,
        command: str = "",
        cancel: CancelScope | None = None,
    ) -> None:
        self.config = config
        self._table = config.train
        self.setup = setup
        self.ranks = ranks or Ranks()
        self._observer = observer or (lambda told: None)
        self._note = note or (lambda text: None)
        self._cancel = cancel or CancelScope()
        self.run = Path(config.save.dir)
        self._total = setup.total
        check_roles(str(config.method["name"]), setup.method)
        self.state = TrainState(
            roles={
                name: make_role(name, modules, self._table) for name, modules in setup.method.roles().items()
            }
        )
        self._covered: set[str] = set()
        self._command = command

    def fit(self, resume: str | None = None) -> RunResult:
        """Trains to the last step, from the first one or from a checkpoint.

        Args:
            resume: `latest`, a step or a path.

        Raises:
            TrainError: FV702 it cannot be resumed, or begun where another run is, FV703 a parameter gets no gradient,
                FV705 it is not finite.
        """
        table, ranks = self._table, self.ranks
        if resume is not None:
            self.restore(find_checkpoint(self.run, resume))
        elif self.state.step == 0:
            check_new(self.run)
        with ExitStack() as stack:
            batches = stack.enter_context(self.batches())
            logs = self._logs() if ranks.first else []
            for log in logs:
                stack.enter_context(log)
            last: dict[str, float] = {}
            while self.state.step < table.steps:
                for told in self.advance(batches):
                    last = dict(told.figures)
                    for log in logs:
                        log.tell(told)
                    if ranks.first:
                        self._observer(told)
                if self._validates():
                    self.validate()
                cancelled = self._cancel.cancelled
                if cancelled or self._saves():
                    self.save()
                    if ranks.first:
                        draw_curves(self.run)
                if cancelled:
                    break
        self._write_model()
        if self.state.step < table.steps:
            raise _cancelled(self.state.step)
        return RunResult(folder=self.run, steps=self.state.step, metrics=last)

    def save(self) -> None:
        """Writes a checkpoint of the step that is done. Changes nothing of the run."""
        if self.ranks.first:
            facts = {
                **self.state.numbers(),
                "settings": self.setup.resolved,
                "generators": generator_states(),
            }
            checkpoint = Checkpoint(tensors=self.state.tensors(), facts=facts)
            write_checkpoint(self.run, self.state.step, checkpoint, keep=self.config.save.keep)
        self.ranks.wait()

    def _write_model(self) -> None:
        """Leaves the model of the run, once it has ended: whole, so its components are loaded that were not trained."""
        instance = self.setup.model.instance
        trained = {name for role in self.setup.method.roles().values() for name in role}
        instance.weights_changed(*trained)  # torch does not count what a fused optimizer writes
        if self.ranks.first:
            made = provenance(self.setup, self.run, steps=self.state.step, command=self._command)
            write_run_model(self.run, instance, self.state, str(self.config.method["name"]), made)
        self.ranks.wait()

    def validate(self) -> None:
        """Has the engine make the clips of [validate] with the weights so far. Changes nothing of the run."""
        if self.ranks.first:
            means = make_clips(self.run / "samples", self.config.validate, self.setup, self.state, self._note)
            if means:
                told = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
                self._note(f"step {self.state.step}: {told}")
        self.ranks.wait()

    def restore(self, folder: Path) -> None:
        """Takes the run up where a checkpoint left it.

        Raises:
            TrainError: FV702, it is damaged, or of another run.
        """
        checkpoint = read_checkpoint(folder)
        before, override = checkpoint.facts["settings"], self.config.resume.override
        if other := check_same(before, self.setup.resolved, override=override):
            self._note(f"goes on with other settings: {other}")
        restored(self.state, checkpoint, folder)
        self._covered.update(self.state.roles)
        restore_generators(checkpoint.facts["generators"])  # last: what restoring itself draws does not count

    def gradients(self, role: Role, batches: Sequence[Batch]) -> tuple[float, dict[str, Mean]]:
        """Leaves the gradient of the step's mean loss in the parameters; the loss, and what else the method tells.

        The sum over the samples is divided by their number on all ranks, so splitting a step changes no weight.
        """
        role.optimizer.zero_grad(set_to_none=True)
        total = torch.zeros((), device=self.setup.model.device)
        told: dict[str, Mean] = {}
        for batch in batches:
            loss = self._loss(role.name, batch)
            (loss.total / self._total).backward()
            total += loss.total.detach()
            for name, mean in loss.metrics.items():
                before = told.get(name, Mean(total=0.0, count=0))
                told[name] = Mean(total=before.total + mean.total, count=before.count + mean.count)
        if role.name not in self._covered:
            check_coverage(role.parameters)
            self._covered.add(role.name)
        grads = [one.grad for one in role.values() if one.grad is not None]
        self.ranks.add([*grads, total])
        return float(total) / self._total, told

    def advance(self, batches: Batches) -> Iterator[StepTold]:
        """One step of the run: of each role whose turn it is."""
        began = time.perf_counter()
        own = batches.of(self.state.step)
        fetched = time.perf_counter() - began
        for name in self.setup.method.updates(self.state.step):
            role, began = self.state.roles[name], time.perf_counter()
            loss, means = self.gradients(role, own)
            norm = self._norm(role)
            rate = self._update(role, loss, norm, own)
            seconds = time.perf_counter() - began + fetched
            figures = {
                "loss": loss,
                "lr": rate,
                "grad_norm": norm,
                "seconds": seconds,
                "data_seconds": fetched,
                "samples_per_second": self._total / seconds,
                **{name: mean.total / mean.count for name, mean in sorted(means.items())},
            }
            yield StepTold(role=name, step=self.state.step + 1, steps=self._table.steps, figures=figures)
        self.state.step += 1

    def _loss(self, role: str, batch: Batch) -> Loss:
        bf16 = self._table.precision is Precision.BF16
        with torch.autocast(self.setup.model.device.type, torch.bfloat16) if bf16 else nullcontext():
            return self.setup.method.loss(role, batch)

    def _norm(self, role: Role) -> float:
        """The norm of the gradient, which is clipped."""
        most = self._table.clip or math.inf
        return float(nn.utils.clip_grad_norm_(role.values(), most, foreach=True))

    def _update(self, role: Role, loss: float, norm: float, own: Sequence[Batch]) -> float:
        """Takes the optimizer step, unless it is not finite; the learning rate."""
        table = self._table
        factor = learning_rate(self.state.step, steps=table.steps, warmup=table.warmup, decay=table.decay)
        for group in role.optimizer.param_groups:
            group["lr"] = group["rate"] * factor
        if math.isfinite(loss) and math.isfinite(norm):
            role.update(table.ema)
        elif table.not_finite is NotFinite.SKIP:
            self.state.skipped += 1
        else:
            raise _not_finite(self.state.step, loss, norm, own)
        return table.lr * factor

    def _saves(self) -> bool:
        """Whether the step that is done is one to save."""
        step, every = self.state.step, self.config.save.every
        return step == self._table.steps or bool(every and step % every == 0)

    def _validates(self) -> bool:
        every = self.config.validate.every
        return bool(every and self.state.step % every == 0)

    def batches(self) -> Batches:
        """The samples of this rank, by step."""
        setup = self.setup
        empty = setup.model.card.defaults.negative_prompt
        return Batches(
            setup.data.source,
            setup.table,
            self._table,
            self.ranks,
            empty=empty,
            empty_embeds=setup.data.embeds(empty) if setup.table.caption_dropout else None,
        )

    def _logs(self) -> list[RunLog | TensorBoard]:
        self.run.mkdir(parents=True, exist_ok=True)
        logs: list[RunLog | TensorBoard] = [RunLog(self.run, done=self.state.step)]
        return [*logs, TensorBoard(self.run, done=self.state.step)] if self.config.log else logs


def _cancelled(step: int) -> Cancelled:
    return Cancelled(
        "FV510",
        name="training",
        rule=f"was cancelled after step {step}, of which there is a checkpoint",
        remedy="Go on with --resume latest.",
    )


def _not_finite(step: int, loss: float, norm: float, batches: Sequence[Batch]) -> TrainError:
    samples = ", ".join(sample.id for batch in batches for sample in batch.samples)
    return TrainError(
        "FV705",
        name=f"step {step + 1}",
        value=f"loss {loss}, gradient norm {norm}",
        rule=f"is not finite, of the samples {samples}; the weights are those of the step before",
        remedy="Lower train.lr, clip, look at these samples, or skip such steps with train.not_finite=skip.",
    )
