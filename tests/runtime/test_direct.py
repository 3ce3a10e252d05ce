"""Steps outside of requests: what is trained is what is served, with a gradient where it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import Engine, OutputSpec, Request
from fv_core.errors import TrainError
from fv_core.loop import LoopEnv
from fv_core.loop.rng import seed_state, torch_normal
from fv_core.runtime.execution.direct import predictions
from fv_core.testing.tiny import CARD
from fv_core.training.model import TrainedModel


@pytest.fixture
def engine() -> Iterator[Engine]:
    torch.set_num_threads(1)
    with Engine([CARD], device="cpu") as made:
        yield made


def test_what_is_trained_is_what_is_served(engine: Engine) -> None:
    """A single step of a request, and the same velocity asked for directly: the same bits."""
    request = Request(
        prompt="a clip",
        seed=3,
        size=(16, 16),
        frames=5,
        steps=1,
        guidance=1.0,
        output=OutputSpec(keep=("latent",)),
    )
    served = engine.run(request).tensors["latent"]
    model = TrainedModel(engine.instance(CARD.model_id))
    noise, _ = torch_normal(seed_state(3), tuple(served.shape))
    sigma = 1 - 1e-6  # where the schedule begins
    conds = model.encode(["a clip"], grad=False)
    (velocity,) = model.velocity(noise[None], [sigma], conds, grad=False)
    assert torch.equal(noise + torch.tensor(-sigma) * velocity, served)
    (later,) = model.velocity(noise[None], [0.5], conds, grad=False)
    assert not torch.equal(noise + torch.tensor(-sigma) * later, served), "the noise level is seen"


def test_a_gradient_flows_where_it_is_asked_for(engine: Engine) -> None:
    model = TrainedModel(engine.instance(CARD.model_id))
    weights = [*model.module("text").parameters(), *model.module("denoiser").parameters()]
    for one in weights:
        one.requires_grad_(True)
    latents = torch.ones(2, 4, 2, 2, 2)
    conds = model.encode(["one", "two"], grad=True)
    assert not model.velocity(latents, [0.2, 0.8], conds, grad=False).requires_grad
    assert not any(one.requires_grad for one in model.encode(["one"], grad=False))
    model.velocity(latents, [0.2, 0.8], conds, grad=True).sum().backward()
    assert all(one.grad is not None for one in weights), "through the prompt too"


def test_samples_of_several_shapes_keep_their_places(engine: Engine) -> None:
    instance = engine.instance(CARD.model_id)
    model = TrainedModel(instance)
    (cond,) = model.encode(["one"], grad=False)
    loop: Any = instance.loop("denoise")
    sizes = [(4, 1, 2, 2), (4, 2, 2, 2), (4, 1, 2, 2)]
    states = [loop.at(torch.full(size, float(i)), 0.5, {"cond": cond}) for i, size in enumerate(sizes)]
    together = predictions(instance, loop, states, grad=False)
    apart = [predictions(instance, loop, [state], grad=False)[0] for state in states]
    assert [tuple(one.velocity.shape) for one in together] == sizes
    assert all(
        torch.allclose(one.velocity, other.velocity) for one, other in zip(together, apart, strict=True)
    )


def test_a_step_that_uses_caches_is_refused(engine: Engine) -> None:
    instance = engine.instance(CARD.model_id)
    loop = instance.loop("decode")
    request = engine._intake.settled(Request(prompt="a clip", size=(16, 16), frames=5))[1].request
    env = LoopEnv(device=torch.device("cpu"), scope="s", owner="o")
    state = loop.init(request, {"latent": torch.ones(4, 2, 2, 2)}, env)
    ready = replace(state, latent=state.waiting[0], waiting=())
    with pytest.raises(TrainError, match=r"FV704 vae\.decode: uses caches"):
        predictions(instance, loop, [ready], grad=False)
