"""Every prompt is the token ids that the pipeline's own `tokenize_prompt` gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fv_core.loop import ResolvedCall
from fv_core.request import Size
from fv_cosmos3.embodiments import CANVASES, EMBODIMENTS, VIEWS, canvas
from fv_cosmos3.prompts import action_prompt, clip_conversation, clip_prompt, conversation

TEXTS = st.text(max_size=40) | st.sampled_from(
    ["", ".", "a circle.", "a circle...", "a circle!", '{"a": "b"}']
)


@pytest.fixture(scope="module")
def transformer(mine: Any) -> Any:
    return mine.instance.component("transformer")


def ids(transformer: Any, op: str, *, negative: bool = False, **rows: Any) -> list[int]:
    call = ResolvedCall(rows=rows, static={"negative": negative}, caches=())
    tokens: list[int] = transformer.forward_batch(op, [call])[0].output.tensors["tokens"].tolist()
    return tokens


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    text=TEXTS,
    negative=TEXTS,
    frames=st.sampled_from([1, 5, 189]),
    fps=st.sampled_from([0.5, 5.0, 24.0, 29.97]),
)
@example(text="a red circle", negative="", frames=1, fps=24.0)
def test_prompts_equal_the_pipelines(
    text: str, negative: str, frames: int, fps: float, transformer: Any, reference: Any
) -> None:
    theirs = reference.pipeline.tokenize_prompt(
        text, negative, num_frames=frames, height=48, width=64, fps=fps
    )
    numbers: dict[str, Any] = {"width": 64, "height": 48, "frames": frames, "fps": fps}
    assert ids(transformer, "prompt", text=text, **numbers) == theirs[0]
    assert ids(transformer, "prompt", negative=True, text=negative, **numbers) == theirs[1]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    text=TEXTS,
    view=st.sampled_from(sorted(VIEWS)),
    tier=st.sampled_from(sorted(CANVASES)),
    chunk=st.sampled_from([4, 16, 700]),
    fps=st.sampled_from([0.5, 5.0, 24.0]),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
)
def test_action_prompts_equal_the_pipelines(
    text: str,
    view: str,
    tier: str,
    chunk: int,
    fps: float,
    size: tuple[int, int],
    transformer: Any,
    reference: Any,
) -> None:
    width, height = (side * 16 for side in size)
    target = canvas(tier, Size(width, height))
    theirs, negative = reference.pipeline.tokenize_prompt(
        text, "grey", num_frames=chunk + 1, height=target.height, width=target.width, fps=fps,
        use_system_prompt=False, action_mode="policy", action_view_point=view,
    )  # fmt: skip
    numbers: dict[str, Any] = {"width": width, "height": height, "frames": chunk + 1, "fps": fps}
    assert ids(transformer, "action_prompt", text=text, view=view, tier=tier, **numbers) == theirs
    assert ids(transformer, "action_prompt", negative=True, text="grey") == negative


def test_canvases_views_and_embodiments_are_the_pipelines() -> None:
    from diffusers.pipelines.cosmos import pipeline_cosmos3_omni as theirs

    assert {tier: [(size.height, size.width) for size in sizes] for tier, sizes in CANVASES.items()} == {
        tier: list(bins.values()) for tier, bins in theirs._ACTION_RESOLUTION_BINS.items()
    }
    assert dict(VIEWS) == theirs._ACTION_VIEWPOINT_TEMPLATES
    assert {name: one.width for name, one in EMBODIMENTS.items()} == theirs._EMBODIMENT_TO_RAW_ACTION_DIM
    assert {name: one.domain for name, one in EMBODIMENTS.items()} == {
        name: theirs._EMBODIMENT_TO_DOMAIN_ID[name] for name in EMBODIMENTS
    }


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.sampled_from(sorted(CANVASES)), st.integers(1, 200), st.integers(1, 200))
def test_canvas_is_the_one_that_the_pipeline_chooses(tier: str, width: int, height: int) -> None:
    from diffusers.pipelines.cosmos import pipeline_cosmos3_omni as theirs
    from diffusers.video_processor import VideoProcessor

    bins = theirs._ACTION_RESOLUTION_BINS[tier]
    chosen = VideoProcessor.classify_height_width_bin(height, width, ratios=bins)
    assert canvas(tier, Size(width, height)) == Size(chosen[1], chosen[0])


def test_sentences_say_what_is_made() -> None:
    size = Size(1280, 720)
    assert clip_prompt("a dog.", size, 189, 24.0, negative=False) == (
        "a dog. The video is 7.9 seconds long and is of 24 FPS. This video is of 720x1280 resolution."
    )
    assert clip_prompt("", size, 1, 24.0, negative=True) == "This image is not of 720x1280 resolution."
    assert '"duration": "3s", "fps": 5.0' in action_prompt("go", "ego_view", size, 17, 5.0)
    assert [turn["role"] for turn in clip_conversation("a", 1)] == ["system", "user"]
    assert conversation("a") == [{"role": "user", "content": "a"}]


def test_a_thought_takes_the_prompts_place_and_an_empty_one_is_told(transformer: Any) -> None:
    numbers: dict[str, Any] = {"width": 64, "height": 48, "frames": 5, "fps": 8.0}
    plain = ids(transformer, "prompt", text="a dog", **numbers)
    assert ids(transformer, "prompt", text="a cat", thought=" a dog ", **numbers) == plain
    call = ResolvedCall(
        rows={"text": "a dog", "thought": " \n", **numbers}, static={"negative": False}, caches=()
    )
    (out,) = transformer.forward_batch("prompt", [call])
    assert torch.equal(out.output.tensors["tokens"], torch.tensor(plain))
    assert out.output.notes == ("the model thought of nothing: the prompt is used as it is",)
