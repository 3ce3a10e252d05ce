"""The loop of a training: what splits leave equal, what is clipped and stepped when, and what stops a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fv_core.errors import Cancelled, TrainError
from fv_core.request import CancelScope
from fv_core.testing.training import LARGE, SMALL, LatentSource
from fv_core.training.checkpoint import complete_checkpoints
from fv_core.training.contract import Latent, Loss, Sample
from fv_core.training.runlog import read_metrics
from fv_core.training.trainer import Trainer

STUDENT = "student"
Make = Callable[..., Trainer]


def gradient(trainer: Trainer) -> Tensor:
    """Of the first step, all parameters in one."""
    with trainer.batches() as batches:
        own = batches.of(0)
    role = trainer.state.roles[STUDENT]
    trainer.gradients(role, own)
    return torch.cat([one.grad.flatten() for one in role.values() if one.grad is not None])


def double(make: Make, **settings: Any) -> Trainer:
    """A run in fp64, whose samples count different numbers of frames."""

    def change(sample: Sample) -> Sample:
        assert isinstance(sample.content, Latent)
        valid = 1 if sample.id in ("clip1", "clip4") else None
        return replace(sample, content=replace(sample.content, valid=valid))

    trainer = make(LatentSource(dtype=torch.float64, change=change), **settings)
    for name in ("text", "denoiser"):
        trainer.setup.model.module(name).double()
    return trainer


def test_accumulation_equals_the_big_batch(make: Make) -> None:
    """F5, with samples of unequal numbers of elements that count."""
    whole = gradient(double(make, train={"batch": 6}))
    for batch in (1, 2, 3):
        split = gradient(double(make, train={"batch": batch, "accumulate": 6 // batch}))
        assert (split - whole).abs().max() < 1e-12


def test_a_mean_of_the_parts_means_is_another_gradient(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant of F5: each part's mean over the elements that count, and the mean of these."""
    import fv_core.training.maths as maths

    def pooled(velocity: Tensor, target: Tensor, weight: Tensor | None, valid: list[int | None]) -> Tensor:
        kept = [(v - t)[:, :n].flatten() for v, t, n in zip(velocity, target, valid, strict=True)]
        mean: Tensor = torch.cat(kept).square().mean()
        return mean.expand(len(kept))

    monkeypatch.setattr(maths, "flow_losses", pooled)
    whole = gradient(double(make, train={"batch": 6}))
    split = gradient(double(make, train={"batch": 2, "accumulate": 3}))
    assert (split - whole).abs().max() > 1e-6


def test_clipping_and_the_rate_are_of_the_optimizer_step(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """F5: once for all parts of a step, on their whole gradient."""
    clipped: list[float] = []
    original = nn.utils.clip_grad_norm_

    def clip(parameters: Any, most: float, **options: Any) -> Tensor:
        values = list(parameters)
        norm = original(values, most, **options)
        clipped.append(float(torch.cat([one.grad.flatten() for one in values]).norm()))
        return norm

    monkeypatch.setattr(nn.utils, "clip_grad_norm_", clip)
    trainer = make(train={"batch": 1, "accumulate": 3, "clip": 1e-3, "warmup": 2, "decay": 0.5})
    trainer.fit()
    assert clipped == pytest.approx([1e-3] * 4, rel=1e-3)
    lines = read_metrics(trainer.run)
    assert [line["lr"] for line in lines] == pytest.approx([0.005, 0.01, 0.01, 0.005])
    assert all(float(line["grad_norm"]) > 1e-3 for line in lines), (
        "what is told is the norm before it is clipped"
    )


def test_a_step_takes_one_bucket_and_every_sample_counts(make: Make) -> None:
    trainer = make(LatentSource(buckets=(SMALL, LARGE, SMALL, LARGE, SMALL)), train={"steps": 5})
    trainer.fit()
    assert [line["step"] for line in read_metrics(trainer.run)] == [1, 2, 3, 4, 5]


def test_components_have_rates_of_their_own(make: Make) -> None:
    trainer = make(
        method={"components": ["denoiser", "text"]},
        train={"lr": 0.0, "lrs": {"text": 1e-2}, "weight_decay": 0.0},
    )
    before = {name: one.detach().clone() for name, one in trainer.state.roles[STUDENT].parameters.items()}
    trainer.fit()
    moved = {
        name
        for name, one in trainer.state.roles[STUDENT].parameters.items()
        if not torch.equal(one.detach(), before[name])
    }
    assert moved == {name for name in before if name.startswith("text/")}


def test_a_frozen_component_gets_no_gradient_and_stays(make: Make) -> None:
    trainer = make()
    text = trainer.setup.model.module("text")
    before = [one.clone() for one in text.parameters()]
    trainer.fit()
    assert all(one.grad is None and not one.requires_grad for one in text.parameters())
    assert all(torch.equal(one, was) for one, was in zip(text.parameters(), before, strict=True))


def test_a_parameter_without_gradient_is_named(make: Make) -> None:
    trainer = make()
    trainer.setup.model.module("denoiser").register_parameter("idle", nn.Parameter(torch.zeros(2)))
    again = Trainer(trainer.config, trainer.setup)
    with pytest.raises(TrainError, match=r"FV703 .*denoiser/idle"):
        again.fit()


@pytest.mark.parametrize("caught", ["coverage", "guard"])
def test_what_is_not_finite_stops_the_run_before_it_is_saved(make: Make, caught: str) -> None:
    """A NaN in the data at the first step, or at a later one, where it is the guard that sees it."""
    trainer = make(save={"every": 1}, train={"steps": 6})
    original, poisoned = trainer.setup.method.loss, 0 if caught == "coverage" else 3

    def loss(role: str, batch: Any) -> Loss:
        made = original(role, batch)
        return replace(made, total=made.total * float("nan")) if batch.step == poisoned else made

    trainer.setup.method.loss = loss  # type: ignore[method-assign]
    with pytest.raises(TrainError, match=r"FV703" if caught == "coverage" else "FV705 step 4.*clip"):
        trainer.fit()
    assert list(complete_checkpoints(trainer.run)) == ([] if caught == "coverage" else [1, 2, 3])
    assert all(torch.isfinite(one).all() for one in trainer.state.roles[STUDENT].values())


def test_a_step_that_is_not_finite_can_be_left_out(make: Make) -> None:
    trainer = make(train={"not_finite": "skip", "ema": 0.5})
    original = trainer.setup.method.loss

    def loss(role: str, batch: Any) -> Loss:
        made = original(role, batch)
        return replace(made, total=made.total * float("inf")) if batch.step == 2 else made

    trainer.setup.method.loss = loss  # type: ignore[method-assign]
    trainer.fit()
    assert (trainer.state.step, trainer.state.skipped, trainer.state.roles[STUDENT].updates) == (4, 1, 3)
    assert all(torch.isfinite(one).all() for one in trainer.state.roles[STUDENT].values())


def test_the_average_moves_on_optimizer_steps(make: Make) -> None:
    """D6 for one role: 0 ulp against the same operations on what the parameters were."""
    trainer = make(train={"ema": 0.5})
    role = trainer.state.roles[STUDENT]
    expected = [one.detach().clone() for one in role.values()]
    original = role.optimizer.step

    def step(*args: Any) -> None:
        original(*args)
        torch._foreach_lerp_(expected, [one.detach() for one in role.values()], 0.5)

    role.optimizer.step = step  # type: ignore[method-assign,assignment]
    trainer.fit()
    assert role.average is not None
    assert all(torch.equal(one, was) for one, was in zip(role.average, expected, strict=True))
    assert not all(torch.equal(one, now) for one, now in zip(role.average, role.values(), strict=True))


def test_cancelling_leaves_a_checkpoint(make: Make) -> None:
    cancel = CancelScope()
    trainer = make()
    stopped = Trainer(
        trainer.config,
        trainer.setup,
        cancel=cancel,
        observer=lambda told: cancel.cancel() if told.step == 2 else None,
    )
    with pytest.raises(Cancelled, match="after step 2"):
        stopped.fit()
    assert list(complete_checkpoints(trainer.run)) == [2]


def test_captions_are_dropped_as_often_as_asked(make: Make) -> None:
    trainer = make(data={"caption_dropout": 0.5}, train={"batch": 64})
    with trainer.batches() as batches:
        captions = [
            sample.caption for step in range(4) for batch in batches.of(step) for sample in batch.samples
        ]
    assert 90 < captions.count("") < 166


def test_bf16_changes_little(make: Make) -> None:
    plain = gradient(make())
    bf16 = gradient(make(train={"precision": "bf16"}))
    assert not torch.equal(plain, bf16) and torch.allclose(plain, bf16, rtol=0.1, atol=0.05)


def test_a_module_without_checkpointing_is_named(make: Make) -> None:
    with pytest.raises(TrainError, match=r"FV704 train\.checkpointing 'denoiser'"):
        make(train={"checkpointing": True})
