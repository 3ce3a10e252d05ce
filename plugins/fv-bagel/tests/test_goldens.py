"""fv makes what the published code made: images under four ways of guidance, a thought, an edit, an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_bagel.card import TINY
from fv_bagel.grid import pack
from fv_bagel.prompts import PLANNING
from fv_core import OutputSpec, Request
from fv_core.errors import FvError, RequestError
from fv_core.request import Numerics, TaskType
from fv_core.runtime.requests.resolve import resolve

IMAGES = ("t2i_global", "t2i_channel", "t2i_text_channel", "t2i_nocfg", "think")
Difference = Callable[[Tensor, Tensor], float]


@pytest.mark.parametrize("case", IMAGES)
def test_an_image_equals_the_recordings(
    case: str, goldens: Any, mine: Any, difference: Difference, tolerance: float, elsewhere: float
) -> None:
    latent = mine.latent(case)
    assert difference(latent, goldens.rerun[f"{case}.latent"]) <= tolerance
    assert difference(latent, goldens.first[f"{case}.latent"]) <= elsewhere


@pytest.mark.usefixtures("stored_latent")
@pytest.mark.parametrize("threads", [1, 2])
def test_an_edit_from_the_stored_latent_equals_the_recordings(
    threads: int, goldens: Any, mine: Any, difference: Difference, tolerance: float, elsewhere: float
) -> None:
    torch.set_num_threads(threads)
    latent = mine.latent("edit")
    assert difference(latent, goldens.rerun["edit.latent"]) <= tolerance
    assert difference(latent, goldens.first["edit.latent"]) <= elsewhere


def test_an_edit_from_fvs_own_encoding_is_as_near_as_the_autoencoder_is(
    goldens: Any, mine: Any, difference: Difference
) -> None:
    clip = mine.run("edit", output=OutputSpec(keep=("latent", "image_latent")))
    encoded = goldens.rerun if goldens.here else goldens.first
    assert difference(clip.tensors["image_latent"], encoded["edit.vae_encoded"][0]) <= 3e-6
    theirs = goldens.rerun["edit_own_encode.latent"] if goldens.here else goldens.first["edit.latent"]
    assert difference(pack(clip.tensors["latent"][:, 0], 2), theirs) <= 2e-5


def test_every_step_of_an_image_equals_the_recording(
    goldens: Any, mine: Any, difference: Difference, elsewhere: float
) -> None:
    job = mine.engine.start(mine.request("t2i_global"))
    seen = 0
    while not job.done:
        if job.run.current.id == "denoise" and job.run.state is not None:
            step = job.run.state.step
            recorded = goldens.first.get(f"t2i_global.trace.x{step}")
            assert recorded is not None
            assert difference(job.run.state.latent, recorded) <= (0.0 if step == 0 else elsewhere)
            seen += 1
        job.step()
        if job.error is not None:
            raise job.error
    job.close()
    assert seen == 4  # the first state is made by the step that leaves it


def test_frames_are_the_recorded_ones(goldens: Any, mine: Any, difference: Difference) -> None:
    decoded = goldens.first["t2i_global.decoded"]
    video = mine.run("t2i_global", output=OutputSpec(keep=("video",))).tensors["video"]
    theirs = (decoded * 0.5 + 0.5).clamp(0, 1).permute(0, 2, 3, 1)
    assert difference(video, theirs) <= 1e-5


def test_a_thought_is_the_recorded_one(goldens: Any, mine: Any) -> None:
    clip = mine.run("think", output=OutputSpec(keep=("latent", "thought_tokens")))
    assert clip.tensors["thought_tokens"].tolist() == goldens.cases["think"]["tokens"][1:]
    assert clip.text == goldens.cases["think"]["text"]


def test_an_answer_is_the_recorded_one(goldens: Any, mine: Any) -> None:
    clip = mine.run("vlm", output=OutputSpec(keep=("answer_tokens",)))
    assert clip.tensors["answer_tokens"].tolist() == goldens.cases["vlm"]["tokens"][1:]
    assert clip.text == goldens.cases["vlm"]["text"]
    assert clip.frames.shape[0] == 0


def test_words_are_framed_as_recorded(goldens: Any, mine: Any) -> None:
    words = mine.engine.instance(TINY.model_id).component("model").words
    special = goldens.facts["special_ids"]
    marks = words.marks
    assert [marks.begin, marks.end, marks.image_begin, marks.image_end] == list(special.values())
    for case in goldens.cases.values():
        block = words.block(case["prompt"][0]).tolist()
        assert block == [marks.begin, *case["prompt_ids"][0], marks.end]
    assert goldens.facts["think_system_prompt"] == PLANNING
    assert words.block(PLANNING).tolist()[1:-1] == goldens.facts["think_system_prompt_ids"]


@pytest.mark.parametrize("case", [*IMAGES, "edit"])
def test_seed_11_draws_the_recorded_noise(case: str, goldens: Any, mine: Any) -> None:
    job = mine.engine.start(mine.request(case))
    while job.run.current.id != "denoise":
        job.step()
    job.work()
    assert torch.equal(job.run.state.latent, goldens.first[f"{case}.noise"])
    job.close()


def test_ten_prompts_give_ten_images(mine: Any) -> None:
    prompts = [
        f"{colour} {thing}" for colour in ("red", "blue") for thing in ("cat", "dog", "hat", "sea", "sky")
    ]
    keep = OutputSpec(keep=("latent",))
    requests = [Request(prompt=prompt, seed=11, size=(32, 32), steps=3, output=keep) for prompt in prompts]
    latents = {mine.engine.run(request).tensors["latent"].numpy().tobytes() for request in requests}
    assert len(latents) == len(prompts) == 10


def test_a_missing_image_is_refused(mine: Any) -> None:
    with pytest.raises(RequestError) as refusal:
        mine.run("edit", inputs=())
    assert refusal.value.code == "FV308"
    assert mine.run("vlm", inputs=()).text  # a question needs none


@pytest.mark.parametrize("branch", ["context", "no_text", "no_image"])
@pytest.mark.parametrize("part", ["", "_position"])
def test_a_missing_condition_raises(branch: str, part: str, mine: Any) -> None:
    job = mine.engine.start(mine.request("t2i_global"))
    while job.run.current.id != "denoise":
        job.step()
    del job.run.slots[f"{branch}{part}"]
    job.step()
    assert job.error is not None
    job.close()


def test_an_empty_condition_raises(mine: Any) -> None:
    job = mine.engine.start(mine.request("t2i_global"))
    while job.run.current.id != "denoise":
        job.step()
    job.run.slots["context"] = job.run.slots["no_text"]  # empty: nothing comes before the prompt
    job.step()
    assert isinstance(job.error, FvError)
    assert "condition context is empty" in job.error.message
    job.close()


def test_edits_keep_the_size_of_their_image(mine: Any, goldens: Any) -> None:
    assert mine.run("edit", steps=1).frames.shape == (1, 112, 112, 3)
    with pytest.raises(FvError) as refusal:
        mine.run("edit", size=(64, 64), steps=1)
    assert refusal.value.code == "FV302"


def test_tasks_have_the_defaults_of_the_published_code() -> None:
    made = resolve(Request(prompt="a"), TINY, Numerics.REFERENCE)
    assert made.task is TaskType.T2I
    assert made.frames == 1
    facts = {name: made.params[name] for name in ("image_guidance", "interval_low", "renorm", "think")}
    assert facts == {"image_guidance": 1.5, "interval_low": 0.4, "renorm": "global", "think": False}
    assert TINY.programs[TaskType.EDIT].defaults == {
        "image_guidance": 2.0,
        "interval_low": 0.0,
        "renorm": "text_channel",
    }
