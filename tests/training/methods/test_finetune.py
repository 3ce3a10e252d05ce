"""Flow matching against closed forms through the real method (F1), and through the loop that serves (F3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core.cache import ValueRef
from fv_core.card import LatentSpec, derive
from fv_core.loop import CallOutput, ComponentOutput, Done, LoopEnv, ResolvedCall, StepResult
from fv_core.loop.driver import advance
from fv_core.loop.flow_denoise import FlowDenoise
from fv_core.loop.keyed import DrawKey, keyed_normal
from fv_core.request import Numerics, Request
from fv_core.runtime.loops import build_loop
from fv_core.runtime.requests.resolve import settle
from fv_core.testing.tiny import CARD
from fv_core.training import maths
from fv_core.training.contract import Batch, Bucket, Latent, Sample
from fv_core.training.trainer import Trainer

MEAN = torch.tensor([0.6, -0.4], dtype=torch.float64)
COVARIANCE = torch.tensor([[0.5, 0.2], [0.2, 0.8]], dtype=torch.float64)
GRID = Bucket(frames=1, height=160, width=160)
POINTS = 400
"""Points of a sample: its cells are so many draws of one 2-D Gaussian."""


class Gaussian:
    """Latents of two channels whose cells are points of a Gaussian."""

    def __len__(self) -> int:
        return 500

    def bucket(self, index: int) -> Bucket:
        return GRID

    def sample(self, index: int, epoch: int) -> Sample:
        white = keyed_normal(DrawKey(seed=5, purpose="data", step=epoch, sample=index), (2, POINTS)).double()
        points = MEAN[:, None] + torch.linalg.cholesky(COVARIANCE) @ white
        return Sample(id=str(index), caption="", content=Latent(mean=points.view(2, 1, 20, 20)))


def exact_velocity(x: Tensor, s: float) -> Tensor:
    """The marginal velocity of the Gaussian: `s q - (m + (1 - s) S q)`, x [2, points]."""
    c = (1 - s) ** 2 * COVARIANCE + s**2 * torch.eye(2, dtype=torch.float64)
    q = torch.linalg.solve(c, x - (1 - s) * MEAN[:, None])
    velocity: Tensor = s * q - (MEAN[:, None] + (1 - s) * COVARIANCE @ q)
    return velocity


def floor(s: float) -> float:
    """The loss at the exact velocity: `tr(I + S - G C^-1 G^T) / 2` with `G = s I - (1 - s) S`."""
    eye = torch.eye(2, dtype=torch.float64)
    g = s * eye - (1 - s) * COVARIANCE
    c = (1 - s) ** 2 * COVARIANCE + s**2 * eye
    return float(torch.trace(eye + COVARIANCE - g @ torch.linalg.solve(c, g.T)) / 2)


@pytest.fixture
def method(make: Callable[..., Trainer], monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Any]:
    """The method at one noise level, its denoiser the exact velocity; `seen` has what it was given."""

    def made(level: float) -> Any:
        slice_ = {"low": level, "high": level + 1e-7, "stratified": False, "shift": 1.0}
        trainer = make(Gaussian(), method=slice_)
        trainer.seen = []  # type: ignore[attr-defined]

        def forward(op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
            outputs = []
            for call in calls:
                latent, timestep = call.rows["latent"], call.rows["timestep"]
                assert isinstance(latent, Tensor) and isinstance(timestep, int)
                trainer.seen.append((latent, timestep))  # type: ignore[attr-defined]
                v = exact_velocity(latent.reshape(2, -1).double(), timestep / 1000).view(latent.shape)
                outputs.append(ComponentOutput(output=CallOutput(tensors={"velocity": v.float()})))
            return outputs

        denoiser = trainer.setup.model.instance.component("denoiser")
        monkeypatch.setattr(denoiser, "forward_batch", forward)
        return trainer

    return made


def batch(trainer: Any) -> Batch:
    source = trainer.setup.data.source
    return Batch(
        step=0, numbers=range(len(source)), samples=[source.sample(i, 0) for i in range(len(source))]
    )


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_the_loss_at_the_exact_velocity_is_its_floor(method: Callable[[float], Any], level: float) -> None:
    """F1 (i): 2e5 points, within 1 %; a target of the other sign is far off."""
    trainer = method(level)
    with torch.no_grad():
        loss = trainer.setup.method.loss("student", batch(trainer))
    assert float(loss.total) / 500 == pytest.approx(floor(level), rel=0.01)


def test_a_target_of_the_other_sign_is_seen(
    method: Callable[[float], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = method(0.5)
    monkeypatch.setattr(maths, "velocity_target", lambda x0, eps: x0 - eps)
    with torch.no_grad():
        loss = trainer.setup.method.loss("student", batch(trainer))
    assert float(loss.total) / 500 > 2 * floor(0.5)


def fitted(trainer: Any) -> float:
    """The root mean square between the exact velocity and a least-squares fit to the method's own batch."""
    whole = batch(trainer)
    targets: list[Tensor] = []
    original = maths.velocity_target

    def kept(x0: Tensor, eps: Tensor) -> Tensor:
        targets.append(original(x0, eps))
        return targets[-1]

    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(maths, "velocity_target", kept)
        trainer.setup.method.loss("student", whole)
    x = torch.cat([latent.reshape(2, -1) for latent, _ in trainer.seen], 1).double()
    v = torch.cat([one.reshape(2, -1) for one in targets[0]], 1).double()
    design = torch.cat([x, torch.ones(1, x.shape[1], dtype=torch.float64)]).T
    found = torch.linalg.lstsq(design, v.T).solution
    grid = torch.cartesian_prod(*(torch.linspace(-1, 1, 9, dtype=torch.float64),) * 2).T
    predicted = found[:2].T @ grid + found[2][:, None]
    return float((predicted - exact_velocity(grid, trainer.seen[0][1] / 1000)).square().mean().sqrt())


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_its_batches_lead_to_the_exact_velocity(method: Callable[[float], Any], level: float) -> None:
    """F1 (ii)."""
    assert fitted(method(level)) < 0.02


def test_mixing_at_another_level_is_seen(
    method: Callable[[float], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = maths.noised
    monkeypatch.setattr(maths, "noised", lambda x0, eps, s: original(x0, eps, maths.shifted(s, 3.0)))
    assert fitted(method(0.5)) > 0.1


SERVED = derive(CARD, latent=LatentSpec(channels=2), recipe={"shift": 5.0})


def served(velocity: Callable[[Tensor, int], Tensor], steps: int = 1000) -> tuple[float, float]:
    """By how many standard errors mean and covariance of what the serving loop makes differ from the Gaussian's."""
    size, frames = (800, 1600), 1
    loop = build_loop(SERVED, "denoise")
    assert isinstance(loop, FlowDenoise)

    request = settle(
        Request(prompt="points", seed=0, size=size, frames=frames, steps=steps, guidance=1.0),
        SERVED,
        Numerics.REFERENCE,
    ).request
    env = LoopEnv(device=torch.device("cpu"), scope="s", owner="o")
    state = loop.init(request, {"cond": ValueRef(hash="x")}, env)
    while not isinstance(plan := loop.next(state), Done):
        (call,) = plan.calls
        latent, timestep = call.rows["latent"], call.rows["timestep"]
        assert isinstance(latent, Tensor) and isinstance(timestep, int)
        output = CallOutput(tensors={"velocity": velocity(latent, timestep)})
        state = advance(loop, state, StepResult(outputs=(output,), caches=((),)))
    points = state.latent.reshape(2, -1).double()
    n = points.shape[1]
    mean_se = (points.mean(1) - MEAN).abs() / (COVARIANCE.diagonal() / n).sqrt()
    spread = torch.cov(points) - COVARIANCE
    variance = (COVARIANCE**2 + COVARIANCE.diagonal()[:, None] * COVARIANCE.diagonal()[None]) / n
    return float(mean_se.max()), float((spread.abs() / variance.sqrt()).max())


def exact(sign: float = 1.0, time: float = 1.0) -> Callable[[Tensor, int], Tensor]:
    return lambda latent, t: (
        sign * exact_velocity(latent.reshape(2, -1).double(), time * t / 1000).view(latent.shape).float()
    )


def test_serving_the_exact_velocity_gives_the_data() -> None:
    """F3: the target that is trained and the loop that serves agree in sign and time; 2e4 points, 1000 steps."""
    assert max(served(exact())) < 3


@pytest.mark.parametrize("mutant", [{"sign": -1.0}, {"time": 0.95}])
def test_another_sign_or_time_is_seen(mutant: dict[str, float]) -> None:
    assert max(served(exact(**mutant))) > 5


def test_noise_levels_come_of_the_recipe_and_one_in_each_stratum(make: Callable[..., Trainer]) -> None:
    trainer = make(train={"batch": 8})
    made = Batch(step=3, numbers=range(8), samples=[])
    sigmas = trainer.setup.method.sigmas(made)  # type: ignore[attr-defined]
    strata = maths.unshifted(sigmas.double(), CARD.recipe.shift) * 8
    assert [math.floor(value) for value in strata.tolist()] == list(range(8))
