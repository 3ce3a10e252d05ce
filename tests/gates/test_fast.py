"""The fast gate: compatible requests share forwards, within the tolerance stated here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fv_core import Engine, Request
from fv_core.request import Numerics

TOLERANCE = 2e-5
"""Largest difference of latents and float frames from the same request alone, fp32 on the CPU at up to 16 rows.

Measured over the 320 requests of the soak run: latents 4.3e-6, frames 4.9e-6.
"""


class ModuleForwards:
    """Counts the forwards of a module itself, and the rows of each."""

    def __init__(self, engine: Engine, component: str) -> None:
        self.rows: list[int] = []
        module = engine.instance("wan21/micro").component(component).module
        self._hook = module.register_forward_pre_hook(self._count, with_kwargs=True)

    def _count(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        first = args[0] if args else kwargs["hidden_states"]
        self.rows.append(len(first))

    def remove(self) -> None:
        self._hook.remove()


@pytest.mark.parametrize("count", [1, 3, 8])
def test_n_requests_of_two_branches_share_one_forward_per_step(
    count: int, engine: Engine, ask: Callable[..., Request]
) -> None:
    text, transformer = ModuleForwards(engine, "text"), ModuleForwards(engine, "transformer")
    prompts = [f"a circle number {index}" for index in range(count)]
    results = engine.run_many([ask(prompt=prompt, steps=3) for prompt in prompts], numerics="fast")
    assert all(result.ok for result in results)
    assert transformer.rows == [2 * count] * 3
    assert text.rows == [count, 1]  # all are guided away from one negative prompt


def test_exact_requests_share_too_and_the_first_shared_forward_is_checked(
    engine: Engine, ask: Callable[..., Request]
) -> None:
    transformer = ModuleForwards(engine, "transformer")
    engine.run_many([ask(seed=seed, steps=3) for seed in range(2)], numerics="exact")
    assert transformer.rows == [4, 1, 1, 1, 1, 4, 4]


def test_requests_join_and_leave_shared_forwards_as_their_steps_allow(
    engine: Engine, ask: Callable[..., Request]
) -> None:
    transformer = ModuleForwards(engine, "transformer")
    engine.run_many([ask(steps=1), ask(steps=3, guidance=1.0), ask(steps=2)], numerics="fast")
    # the unguided request encodes one prompt fewer, so it is a step ahead
    assert transformer.rows == [1, 2 + 1 + 2, 1 + 2]


def largest(one: torch.Tensor, other: torch.Tensor) -> float:
    assert one.shape == other.shape
    assert one.isfinite().all()
    assert other.isfinite().all()
    return float((one - other).abs().max())


def differences(engine: Engine, requests: list[Request]) -> dict[str, float]:
    alone = engine.run_many(requests, order="serial", numerics="exact")
    together = engine.run_many(requests, numerics="fast")
    found = {"latent": 0.0, "video": 0.0}
    for one, other in zip(alone, together, strict=True):
        assert one.clip is not None
        assert other.clip is not None
        assert other.clip.used.numerics is Numerics.FAST
        for name, value in found.items():
            found[name] = max(value, largest(one.clip.tensors[name], other.clip.tensors[name]))
    return found


def test_shared_forwards_stay_within_the_stated_tolerance(
    engine: Engine, ask: Callable[..., Request], soak: bool, record_property: Callable[[str, object], None]
) -> None:
    worst = {"latent": 0.0, "video": 0.0}
    for seed in range(40 if soak else 4):
        requests = [
            ask(
                seed=10 * seed + index,
                prompt=f"a circle number {index}",
                steps=6,
                guidance=5.0,
                size=(32, 32),
            )
            for index in range(8)
        ]
        found = differences(engine, requests)
        worst = {name: max(value, found[name]) for name, value in worst.items()}
    for name, value in worst.items():
        record_property(f"largest difference of {name}", value)
    assert max(worst.values()) <= TOLERANCE
    assert max(worst.values()) > 0.0  # the forwards were shared


def test_one_request_alone_is_bit_equal_where_its_branches_do_not_share(
    engine: Engine, ask: Callable[..., Request]
) -> None:
    (fast,) = engine.run_many([ask(guidance=1.0)], numerics="fast")
    exact = engine.run(ask(guidance=1.0))
    assert fast.clip is not None
    assert torch.equal(fast.clip.tensors["latent"], exact.tensors["latent"])
