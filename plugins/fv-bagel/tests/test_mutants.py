"""The comparison with the recordings sees each mistake it exists for: every mutant differs, far beyond rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_bagel import components, context, denoise, encode, guidance
from fv_bagel.components import MixtureModel
from fv_bagel.guidance import Renorm, guided
from fv_bagel.mot import MotStack, Route
from fv_core.loop import ComponentOutput, ResolvedCall, rng

Patch = pytest.MonkeyPatch
Mutation = Callable[[Patch], None]
FAR = 1e-3


def renorm_kinds_swapped(patch: Patch) -> None:
    other = {
        Renorm.GLOBAL: Renorm.CHANNEL,
        Renorm.CHANNEL: Renorm.TEXT_CHANNEL,
        Renorm.TEXT_CHANNEL: Renorm.GLOBAL,
    }
    patch.setattr(denoise, "guided", lambda *v, renorm, **more: guided(*v, renorm=other[renorm], **more))


def guidance_contexts_swapped(patch: Patch) -> None:
    given = denoise._condition
    other = {"no_text": "no_image", "no_image": "no_text", "context": "context"}
    patch.setattr(denoise, "_condition", lambda branch, inputs: given(other[branch], inputs))


def text_guidance_against_the_whole_context(patch: Patch) -> None:
    given = denoise._condition
    other = {"no_text": "context", "no_image": "no_image", "context": "no_text"}
    patch.setattr(denoise, "_condition", lambda branch, inputs: given(other[branch], inputs))


def latents_through_the_understanding_expert(patch: Patch) -> None:
    def everything(length: int, device: torch.device) -> Route:
        rows = torch.arange(length, device=device)
        return Route(understanding=rows, generation=rows[:0])

    patch.setattr(components, "route", everything)


def marks_through_the_generation_expert(patch: Patch) -> None:
    def everything(length: int, device: torch.device) -> Route:
        rows = torch.arange(length, device=device)
        return Route(understanding=rows[:0], generation=rows)

    patch.setattr(components, "route", everything)


def a_position_for_each_token_of_an_image(patch: Patch) -> None:
    forward = MotStack.forward

    def counted(
        stack: MotStack, rows: list[Tensor], positions: list[Tensor], *, causal: bool = False, **more: Any
    ) -> Any:
        own = positions if causal else [one + torch.arange(len(one)) for one in positions]
        return forward(stack, rows, own, causal=causal, **more)

    patch.setattr(MotStack, "forward", counted)


def image_tokens_that_see_only_what_came_before(patch: Patch) -> None:
    forward = MotStack.forward
    patch.setattr(
        MotStack,
        "forward",
        lambda stack, *rows, causal=True, **more: forward(stack, *rows, causal=True, **more),
    )


def global_norm_over_a_batch(patch: Patch) -> None:
    length = guidance._length

    def together(velocity: Tensor, each: bool) -> Tensor:
        neighbour = torch.ones_like(velocity)
        return length(velocity if each else torch.cat([velocity, neighbour]), each)

    patch.setattr(guidance, "_length", together)


def times_by_a_thousand(patch: Patch) -> None:
    full = torch.full
    patch.setattr(
        torch,
        "full",
        lambda size, value, **more: full(size, value * 1000 if isinstance(value, float) else value, **more),
    )


def guidance_at_every_time(patch: Patch) -> None:
    branches = denoise._branches

    def always(request: Any, grid: Tensor) -> Any:
        params = {**request.params, "interval_low": -1.0, "interval_high": 2.0}
        return branches(replace(request, params=params), grid)

    patch.setattr(denoise, "_branches", always)


def guidance_by_image_left_out(patch: Patch) -> None:
    patch.setattr(denoise, "guided", lambda v, no_text, no_image, **more: guided(v, no_text, None, **more))


def image_noise_before_that_of_the_posterior(patch: Patch) -> None:
    def skipped(state: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        noise, _ = rng.torch_normal(state, shape)
        return noise, state

    patch.setattr(encode, "torch_normal", skipped)


IMAGE: list[tuple[str, Mutation]] = [
    ("t2i_global", renorm_kinds_swapped),
    ("t2i_channel", renorm_kinds_swapped),
    ("t2i_text_channel", renorm_kinds_swapped),
    ("t2i_global", guidance_contexts_swapped),
    ("t2i_global", text_guidance_against_the_whole_context),
    ("t2i_global", latents_through_the_understanding_expert),
    ("t2i_global", marks_through_the_generation_expert),
    ("t2i_global", a_position_for_each_token_of_an_image),
    ("t2i_global", image_tokens_that_see_only_what_came_before),
    ("t2i_global", global_norm_over_a_batch),
    ("t2i_global", times_by_a_thousand),
    ("t2i_text_channel", guidance_by_image_left_out),
    ("think", guidance_contexts_swapped),
]
EDIT: list[Mutation] = [
    renorm_kinds_swapped,
    guidance_contexts_swapped,
    latents_through_the_understanding_expert,
    a_position_for_each_token_of_an_image,
    guidance_by_image_left_out,
    image_noise_before_that_of_the_posterior,
]


@pytest.mark.parametrize(("case", "mutation"), IMAGE, ids=lambda value: getattr(value, "__name__", value))
def test_a_mutant_makes_another_image(case: str, mutation: Mutation, mine: Any, monkeypatch: Patch) -> None:
    mutation(monkeypatch)
    assert mine.difference(case) > FAR


@pytest.mark.usefixtures("stored_latent")
@pytest.mark.parametrize("mutation", EDIT, ids=lambda value: value.__name__)
def test_a_mutant_makes_another_edit(mutation: Mutation, mine: Any, monkeypatch: Patch) -> None:
    mutation(monkeypatch)
    assert mine.difference("edit") > FAR


def test_guidance_outside_its_interval_makes_another_image(mine: Any, monkeypatch: Patch) -> None:
    guidance_at_every_time(monkeypatch)
    params = {"interval_low": 0.7}
    inside = mine.latent("t2i_global", params=params)
    monkeypatch.undo()
    assert float((mine.latent("t2i_global", params=params) - inside).abs().max()) > FAR


@pytest.mark.parametrize("case", ["t2i_global", "think"])
def test_unmutated_runs_of_the_same_cases_equal_the_recordings(
    case: str, mine: Any, tolerance: float, elsewhere: float
) -> None:
    assert mine.difference(case) <= max(tolerance, elsewhere if tolerance else 0.0)


def test_a_stale_context_of_another_prompt_is_seen(mine: Any, monkeypatch: Patch) -> None:
    kept: list[ComponentOutput] = []
    run = MixtureModel.forward_batch

    def stale(model: MixtureModel, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        outputs = run(model, op, calls)
        if op != "text_block":
            return outputs
        kept.extend(outputs)
        return kept[:1]

    def images() -> list[Tensor]:
        return [mine.latent("t2i_global", prompt=prompt, steps=2) for prompt in ("a red hat", "a blue sea")]

    first, second = images()
    assert not torch.equal(first, second)
    monkeypatch.setattr(MixtureModel, "forward_batch", stale)
    first, second = images()
    assert torch.equal(first, second)  # then ten prompts would not give ten images
    assert mine.difference("t2i_global") > FAR


def test_a_thought_that_is_not_read_makes_another_image(mine: Any, monkeypatch: Patch) -> None:
    finalize = context.BuildContext.finalize

    def forgotten(loop: context.BuildContext, state: context.ContextState) -> Any:
        if len(state.contexts) == 1:  # the thought's own
            first = state.blocks[0]
            positions = {"context": state.positions["context"] - first.length}
            state = replace(state, positions=positions)
        return finalize(loop, state)

    monkeypatch.setattr(context.BuildContext, "finalize", forgotten)
    assert mine.difference("think") > FAR
