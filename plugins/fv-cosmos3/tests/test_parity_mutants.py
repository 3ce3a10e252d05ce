"""Mistakes that the parity tests must see: each mutant differs from the pipeline on a case that fv gets right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core.cache import CacheRef
from fv_core.loop.samplers.unipc import unipc_step
from fv_core.request import TaskType
from fv_cosmos3 import denoise, joint, transformer
from fv_cosmos3.denoise import JointDenoise, JointState
from fv_cosmos3.pathways import Text, length, understand
from fv_cosmos3.positions import Clock, grid_positions

Mutation = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def mutate(monkeypatch: pytest.MonkeyPatch, mine: Any) -> Iterator[pytest.MonkeyPatch]:
    """A monkeypatch whose engine is made anew, before and after."""
    mine.again()
    yield monkeypatch
    monkeypatch.undo()
    mine.again()


def vision_starts_right_after_the_text(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(
        joint, "grid_positions", lambda start, grid, clock: grid_positions(start - 15000, grid, clock)
    )


def sound_starts_after_the_vision(mutate: pytest.MonkeyPatch) -> None:
    def follows(start: int, grid: tuple[int, int, int], clock: Clock) -> Tensor:
        return grid_positions(start + (3 if clock.compression == 1 else 0), grid, clock)

    mutate.setattr(joint, "grid_positions", follows)


def time_does_not_follow_the_frame_rate(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(
        joint,
        "grid_positions",
        lambda start, grid, clock: grid_positions(start, grid, replace(clock, rate=24.0)),
    )


def unconditional_pass_left_out(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(denoise, "combine", lambda cond, uncond, scale: cond)


def prompts_swapped(mutate: pytest.MonkeyPatch) -> None:
    call = JointDenoise._call

    def swapped(self: JointDenoise, state: JointState, branch: str, prompt: CacheRef) -> Any:
        other = state.uncond if branch == "cond" else state.cond
        return call(self, state, branch, other or prompt)

    mutate.setattr(JointDenoise, "_call", swapped)


def keys_and_values_of_another_prompt(mutate: pytest.MonkeyPatch) -> None:
    """A cache of a request before: as long, and of another text."""
    mutate.setattr(
        transformer,
        "understand",
        lambda module, texts, least: understand(
            module, [replace(text, tokens=text.tokens.flip(0)) for text in texts], least
        ),
    )


def sampler_state_shared_between_modalities(mutate: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def shared(state: Any, *, sample: Tensor, x0: Tensor, step: int, **more: Any) -> Any:
        """The history of whichever modality came last, as one scheduler object would have it."""
        if seen and step > 0 and seen[-1].last_sample.shape != sample.shape:
            last = seen[-1]
            state = replace(
                state,
                last_sample=_fitted(last.last_sample, sample),
                x0s=tuple(_fitted(each, sample) for each in last.x0s),
            )
        following, after = unipc_step(state, sample=sample, x0=x0, step=step, **more)
        seen.append(after)
        return following, after

    mutate.setattr(denoise, "unipc_step", shared)


def _fitted(tensor: Tensor, like: Tensor) -> Tensor:
    flat = tensor.flatten()
    return flat.repeat(-(-like.numel() // len(flat)))[: like.numel()].view(like.shape)


def clean_frames_lost(mutate: pytest.MonkeyPatch) -> None:
    init = JointDenoise.init

    def forgetful(self: JointDenoise, request: Any, inputs: Any, env: Any) -> JointState:
        return init(self, request, {role: slot for role, slot in inputs.items() if role != "condition"}, env)

    mutate.setattr(JointDenoise, "init", forgetful)


def clean_frames_taken_for_noisy(mutate: pytest.MonkeyPatch) -> None:
    init = JointDenoise.init
    mutate.setattr(JointDenoise, "init", lambda *given: replace(init(*given), clean=0))


def sound_drawn_before_the_video(mutate: pytest.MonkeyPatch) -> None:
    noises = JointDenoise._noises

    def reversed_order(self: JointDenoise, request: Any) -> dict[str, Tensor]:
        drawn = noises(self, request)
        generator = torch.Generator("cpu").manual_seed(request.seed)
        return {name: torch.randn(drawn[name].shape, generator=generator) for name in reversed(list(drawn))}

    mutate.setattr(JointDenoise, "_noises", reversed_order)


def spare_action_channels_not_zeroed(mutate: pytest.MonkeyPatch) -> None:
    mutate.setattr(denoise, "_used", lambda action, domain: action)


SOUND: dict[str, Any] = {"params": {"audio": True}, "fps": 10.0}
CASES: list[tuple[Mutation, str]] = [
    (vision_starts_right_after_the_text, "video"),
    (time_does_not_follow_the_frame_rate, "video"),
    (unconditional_pass_left_out, "video"),
    (prompts_swapped, "video"),
    (keys_and_values_of_another_prompt, "video"),
    (sound_starts_after_the_vision, "sound"),
    (sampler_state_shared_between_modalities, "sound"),
    (sound_drawn_before_the_video, "sound"),
    (clean_frames_lost, "video_to_video"),
    (clean_frames_taken_for_noisy, "video_to_video"),
    (spare_action_channels_not_zeroed, "policy"),
]


@pytest.fixture
def facts(pictures_of: Any) -> dict[str, dict[str, Any]]:
    return {
        "video": {},
        "sound": SOUND,
        "video_to_video": {"task": TaskType.V2V, "video": pictures_of(9, 32, 32)},
        "policy": {
            "task": TaskType.POLICY, "image": pictures_of(1, 32, 32)[0], "size": None, "frames": 5, "steps": 2,
        },
    }  # fmt: skip


@pytest.mark.parametrize(("mutation", "name"), CASES, ids=[mutation.__name__ for mutation, _ in CASES])
def test_mutant_differs_from_the_pipeline(
    mutation: Mutation,
    name: str,
    mutate: pytest.MonkeyPatch,
    facts: dict[str, dict[str, Any]],
    difference: Callable[..., float],
) -> None:
    mutation(mutate)
    assert difference(**facts[name]) > 0.0


@pytest.mark.parametrize("name", ["video", "sound", "video_to_video", "policy"])
def test_unmutated_run_of_the_same_case_equals_the_pipeline(
    name: str,
    mutate: pytest.MonkeyPatch,
    facts: dict[str, dict[str, Any]],
    difference: Callable[..., float],
) -> None:
    assert difference(**facts[name]) == 0.0


def test_keys_and_values_are_made_once_per_prompt_and_branch(
    mutate: pytest.MonkeyPatch, mine: Any, case_of: Any
) -> None:
    calls: list[int] = []

    def counted(module: Any, texts: list[Text], least: int) -> Any:
        hidden, caches = understand(module, texts, least)
        calls.extend(len(text.tokens) for text in texts)
        assert [length(kv) for kv in caches] == [len(text.tokens) for text in texts]
        return hidden, caches

    mutate.setattr(transformer, "understand", counted)
    mine.clip(case_of(steps=4))
    assert len(calls) == 2
    mine.clip(case_of(steps=4, guidance=1.0, negative=None))
    assert len(calls) == 3
