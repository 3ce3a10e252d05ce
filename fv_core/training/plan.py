"""What a run would do, before it does: its sizes, and the gradient of its first step, which reaches all or is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fv_core.training.config import RunConfig
from fv_core.training.contract import Bucket
from fv_core.training.data.report import Report
from fv_core.training.setup import Setup
from fv_core.training.trainer import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """A training that was not begun.

    Args:
        parameters: that each role trains, by component.
        bytes: of weights that are trained, gradients, optimizer and average; activations come on top.
        samples: of an epoch, by bucket. total: of an optimizer step. epochs: that the run takes.
        loss: of the first step.
        report: of the files that the data is made of; None: it is made of none.
    """

    parameters: Mapping[str, Mapping[str, int]]
    bytes: int
    samples: Mapping[Bucket, int]
    total: int
    steps: int
    epochs: float
    loss: float
    report: Report | None


def plan_of(config: RunConfig, setup: Setup) -> TrainPlan:
    """Raises:
    TrainError: FV703, a parameter gets no gradient.
    """
    source = setup.data.source
    trainer = Trainer(config, setup)
    with trainer.batches() as batches:
        first = batches.of(0)
    losses = [trainer.gradients(trainer.state.roles[name], first)[0] for name in setup.method.updates(0)]
    count = sum(one.numel() for role in trainer.state.roles.values() for one in role.values())
    copies = 4 + bool(config.train.ema)  # weight, gradient, two moments, average: fp32 each
    return TrainPlan(
        parameters={
            name: {
                component: sum(one.numel() for one in module.parameters())
                for component, module in modules.items()
            }
            for name, modules in setup.method.roles().items()
        },
        bytes=4 * copies * count,
        samples=Counter(source.bucket(index) for index in range(len(source))),
        total=setup.total,
        steps=config.train.steps,
        epochs=config.train.steps * setup.total / len(source),
        loss=sum(losses),
        report=setup.data.report,
    )
