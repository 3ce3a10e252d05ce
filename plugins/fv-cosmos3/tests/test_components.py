"""The components: chunked encoding and decoding, requests that do not fit, and nothing kept between calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fv_core import OutputSpec
from fv_core.cache import CacheContent
from fv_core.errors import FvError, RequestError
from fv_core.loop import ResolvedCall
from fv_core.request import TaskType
from fv_cosmos3.positions import Clock, grid_positions, text_positions


@pytest.fixture(autouse=True)
def _no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def call(
    component: Any, op: str, caches: tuple[CacheContent, ...] = (), static: Any = None, **rows: Any
) -> Any:
    (out,) = component.forward_batch(op, [ResolvedCall(rows=rows, static=static or {}, caches=caches)])
    return out


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(seed))


def encoded(vae: Any, pixels: Tensor) -> Tensor:
    """All chunks of a clip, and the latent of them."""
    cache: CacheContent = []
    chunks = []
    for first, last in [(0, 1), *((1 + 4 * i, 5 + 4 * i) for i in range((pixels.shape[1] - 1) // 4))]:
        out = call(vae, "encode", (list(cache),), pixels=pixels[:, first:last])
        (cache,) = out.caches
        chunks.append(out.output.tensors["features"])
    height, width = pixels.shape[-2:]
    out = call(vae, "latent", features=torch.cat(chunks, dim=1), width=width, height=height)
    latent: Tensor = out.output.tensors["latent"]
    return latent


@pytest.mark.parametrize("frames", [1, 5, 13])
def test_encoding_chunk_by_chunk_equals_the_pipeline(frames: int, mine: Any, reference: Any) -> None:
    pixels = noise(3, frames, 32, 48).clamp(-1, 1)
    theirs = reference.pipeline._encode_video(pixels[None])[0]
    assert torch.equal(encoded(mine.instance.component("vae"), pixels), theirs)


def test_first_latents_do_not_depend_on_what_follows(mine: Any) -> None:
    vae, pixels = mine.instance.component("vae"), noise(3, 13, 32, 32).clamp(-1, 1)
    assert torch.equal(encoded(vae, pixels[:, :5]), encoded(vae, pixels)[:, :2])


def test_calls_keep_nothing_in_the_modules_and_leave_caches_alone(mine: Any) -> None:
    vae, pixels = mine.instance.component("vae"), noise(3, 9, 32, 32).clamp(-1, 1)
    first = call(vae, "encode", ([],), pixels=pixels[:, :1])
    (kept,) = first.caches
    copies = [item.clone() if isinstance(item, Tensor) else item for item in kept]
    attributes = {name: id(value) for name, value in vars(vae.module).items()}
    one = call(vae, "encode", (list(kept),), pixels=pixels[:, 1:5]).output.tensors["features"]
    other = call(vae, "encode", (list(kept),), pixels=pixels[:, 1:5]).output.tensors["features"]
    assert torch.equal(one, other)
    assert {name: id(value) for name, value in vars(vae.module).items()} == attributes
    for item, copy in zip(kept, copies, strict=True):
        assert torch.equal(item, copy) if isinstance(copy, Tensor) else item == copy


def test_velocities_are_zero_where_frames_are_given(mine: Any) -> None:
    transformer = mine.instance.component("transformer")
    (kv,) = call(transformer, "text_kv", ([],), tokens=torch.arange(9)).caches
    rows = {"video": noise(16, 3, 4, 4), "timestep": 500, "fps": 8.0, "domain": "umi"}
    out = call(transformer, "velocities", (list(kv),), action=noise(8, 12), clean_actions=8, clean=2, **rows)
    found = out.output.tensors
    assert not found["video"][:, :2].any() and found["video"][:, 2:].all()
    assert not found["action"].any()
    assert out.caches == (None,)


def test_modalities_lie_side_by_side_in_time() -> None:
    video = grid_positions(
        15009, (3, 2, 1), Clock(rate=24.0, compression=4, base_rate=24.0, base_compression=4)
    )
    sound = grid_positions(
        15009, (25, 1, 1), Clock(rate=25.0, compression=1, base_rate=24.0, base_compression=1)
    )
    action = grid_positions(
        15009, (8, 1, 1), Clock(rate=24.0, compression=1, base_rate=24.0, base_compression=4, first=1)
    )
    assert text_positions(0, 3).tolist() == [[0, 1, 2]] * 3
    assert video.tolist() == [
        [15009, 15009, 15010, 15010, 15011, 15011], [0, 1, 0, 1, 0, 1], [0] * 6,
    ]  # fmt: skip
    assert sound[0, 0] == action[0, 0] - 0.25 == 15009
    assert action[0].tolist() == [15009 + 0.25 * i for i in range(1, 9)]


def refused(mine: Any, case: Any, **more: Any) -> FvError:
    with pytest.raises(RequestError) as caught:
        mine.engine.run(case.request(**more))
    return caught.value


@pytest.mark.parametrize(("task", "name"), [(TaskType.T2I, "audio"), (TaskType.POLICY, "think")])
def test_sound_and_thinking_are_refused_where_there_is_none(
    task: TaskType, name: str, mine: Any, case_of: Any, pictures_of: Any
) -> None:
    image = pictures_of(1, 32, 32)[0] if task is TaskType.POLICY else None
    case = case_of(task=task, params={name: True}, image=image, size=None)
    error = refused(mine, case, output=OutputSpec())
    assert (error.code, f"not for task {task}" in str(error)) == ("FV310", True)


def test_sizes_beyond_the_canvas_are_refused(mine: Any, case_of: Any, pictures_of: Any) -> None:
    error = refused(mine, case_of(task=TaskType.POLICY, size=None, image=pictures_of(1, 336, 192)[0]))
    assert (error.code, "320x192" in str(error)) == ("FV302", True)


def test_action_modes_take_pixels_as_they_are(mine: Any, case_of: Any, pictures_of: Any) -> None:
    error = refused(mine, case_of(task=TaskType.POLICY, size=(32, 32), image=pictures_of(1, 48, 32)[0]))
    assert (error.code, "48x32" in str(error)) == ("FV302", True)


def test_embodiments_wider_than_the_weights_are_refused(mine: Any, case_of: Any, pictures_of: Any) -> None:
    image = pictures_of(1, 32, 32)[0]
    error = refused(mine, case_of(task=TaskType.POLICY, size=None, image=image, params={"domain": "galbot"}))
    assert (error.code, "30 numbers" in str(error)) == ("FV310", True)


def test_actions_of_another_width_are_refused(mine: Any, case_of: Any, pictures_of: Any) -> None:
    image, action = pictures_of(1, 32, 32)[0], np.zeros((8, 7), np.float32)
    error = refused(mine, case_of(task=TaskType.FORWARD_DYNAMICS, size=None, image=image, action=action))
    assert (error.code, "7 numbers" in str(error)) == ("FV310", True)


def test_more_clean_frames_than_frames_are_refused(mine: Any, case_of: Any, pictures_of: Any) -> None:
    video, params = pictures_of(9, 32, 32), {"condition_frames": 4}
    error = refused(mine, case_of(task=TaskType.V2V, video=video, frames=9, params=params))
    assert (error.code, "1 to 3" in str(error)) == ("FV310", True)


def test_what_inputs_undergo_is_told(mine: Any, case_of: Any, pictures_of: Any) -> None:
    case = case_of(
        task=TaskType.V2V, video=pictures_of(7, 48, 32), steps=1, frames=5, params={"keep": "last"}
    )
    assert mine.clip(case).used.adjusted == (
        "the video of 48x32 was scaled to 32x32",
        "the clip goes on from the last 5 of the 7 frames of the video",
    )
    image = pictures_of(1, 32, 32)[0]
    action = np.zeros((2, 10), np.float32)
    case = case_of(
        task=TaskType.FORWARD_DYNAMICS, image=image, action=action, size=None, steps=1, frames=5, guidance=1.0,
        negative=None,
    )  # fmt: skip
    assert mine.clip(case).used.adjusted == ("2 actions were given: the last one was repeated to 4",)
    exact = case_of(task=TaskType.I2V, image=image, steps=1, frames=5)
    assert mine.clip(exact).used.adjusted == ()


def test_sound_is_as_long_as_the_clip(mine: Any, case_of: Any) -> None:
    clip = mine.clip(case_of(steps=1, frames=5, fps=7.0, params={"audio": True}))
    assert clip.audio is not None
    assert (clip.audio.samples.shape, clip.audio.rate) == ((2, int(5 / 7.0 * 16000)), 16000)
