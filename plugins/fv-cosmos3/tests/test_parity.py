"""C1 parity: under reference numerics every mode gives the bits of `diffusers.Cosmos3OmniPipeline`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import diffusers
import numpy as np
import pytest
import torch

from fv_core.request import TaskType
from fv_cosmos3.card import CARDS

LONG = " ".join(f"a red circle {i} moves right over the green square." for i in range(40))


def test_reference_is_the_version_that_the_cards_name() -> None:
    assert {card.parity.reference_version for card in CARDS if card.parity} == {diffusers.__version__}


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"guidance": 1.0, "negative": None},
        {"steps": 1, "size": (24, 40), "seed": 2**64 - 1},
        {"steps": 6, "frames": 17, "fps": 24.0, "params": {"shift": 3.0}},
        {"prompt": LONG, "negative": "", "frames": 1},
        {"prompt": "zu\u0308gig \U0001f534 \uff14\u00d7\uff14 ends with a stop.", "fps": 29.97, "frames": 5},
    ],
)
def test_text_to_video_equals_the_pipeline(facts: dict[str, Any], difference: Callable[..., float]) -> None:
    assert difference(**facts) == 0.0


@pytest.mark.parametrize("size", [(32, 32), (56, 24)])
def test_text_to_image_equals_the_pipeline(size: tuple[int, int], difference: Callable[..., float]) -> None:
    assert difference(task=TaskType.T2I, size=size) == 0.0


@pytest.mark.parametrize("task", [TaskType.T2V, TaskType.I2V, TaskType.V2V])
def test_sound_beside_video_equals_the_pipeline(
    task: TaskType, difference: Callable[..., float], pictures_of: Any
) -> None:
    given = {
        TaskType.T2V: {},
        TaskType.I2V: {"image": pictures_of(1, 32, 32)[0]},
        TaskType.V2V: {"video": pictures_of(9, 32, 32)},
    }
    assert difference(task=task, params={"audio": True}, fps=10.0, **given[task]) == 0.0


@pytest.mark.parametrize(
    ("given", "size"), [((32, 32), (32, 32)), ((37, 51), (48, 32)), ((64, 16), (24, 56))]
)
def test_image_to_video_equals_the_pipeline(
    given: tuple[int, int], size: tuple[int, int], difference: Callable[..., float], pictures_of: Any
) -> None:
    assert difference(task=TaskType.I2V, image=pictures_of(1, *given)[0], size=size) == 0.0


@pytest.mark.parametrize(
    ("length", "given", "params"),
    [
        (9, (32, 32), {}),
        (9, (32, 32), {"keep": "last", "condition_frames": 1}),
        (3, (32, 32), {"condition_frames": 3}),
        (14, (48, 20), {"keep": "last"}),
    ],
)
def test_video_to_video_equals_the_pipeline(
    length: int,
    given: tuple[int, int],
    params: dict[str, Any],
    difference: Callable[..., float],
    pictures_of: Any,
) -> None:
    video = pictures_of(length, *given)
    assert difference(task=TaskType.V2V, video=video, frames=13, params=params) == 0.0


@pytest.mark.parametrize(
    ("size", "params"), [((32, 32), {}), ((48, 32), {"domain": "pusht", "view": "wrist_view"})]
)
def test_policy_equals_the_pipeline(
    size: tuple[int, int], params: dict[str, Any], difference: Callable[..., float], pictures_of: Any
) -> None:
    facts = {
        "task": TaskType.POLICY,
        "size": None,
        "params": params,
        "guidance": 1.0,
        "steps": 2,
        "frames": 5,
    }
    assert difference(image=pictures_of(1, *size)[0], **facts) == 0.0


@pytest.mark.parametrize("count", [4, 2, 9])
def test_forward_dynamics_equals_the_pipeline(
    count: int, difference: Callable[..., float], pictures_of: Any
) -> None:
    action = np.random.default_rng(3).standard_normal((count, 10)).astype(np.float32)
    image = pictures_of(1, 40, 24)[0]
    assert (
        difference(task=TaskType.FORWARD_DYNAMICS, image=image, action=action, size=None, steps=2, frames=5)
        == 0.0
    )


@pytest.mark.parametrize(("length", "size"), [(5, (64, 48)), (4, (256, 256))])
def test_inverse_dynamics_equals_the_pipeline(
    length: int, size: tuple[int, int], difference: Callable[..., float], pictures_of: Any
) -> None:
    """The second one fills its canvas, and its last frame is repeated."""
    video = pictures_of(length, *size)
    facts = {
        "task": TaskType.INVERSE_DYNAMICS,
        "params": {"domain": "umi"},
        "size": None,
        "fps": 5.0,
        "frames": 5,
    }
    assert difference(video=video, **facts) == 0.0


def test_comparison_sees_a_single_bit_and_refuses_what_is_not_alike(compare: Callable[..., float]) -> None:
    tensor = torch.ones(2, 3)
    nudged = tensor.clone()
    nudged[1, 2] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert compare({"latent": tensor}, {"latent": tensor.clone()}) == 0.0
    assert compare({"latent": tensor}, {"latent": nudged}) > 0.0
    for other in (tensor.double(), tensor[:1], tensor * torch.nan):
        with pytest.raises(AssertionError):
            compare({"latent": tensor}, {"latent": other})
    with pytest.raises(AssertionError):
        compare({"latent": tensor}, {})
