"""What a request brings: matched with its task, told in the reply, and the same bytes when it is repeated."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fv_core import Engine, Request
from fv_core.errors import RequestError
from fv_core.plugins import find_card
from fv_core.request import Modality, ModalPart, Numerics, Size, TaskType
from fv_core.runtime.requests.resolve import as_stated, resolve, settle

BAGEL = find_card("bagel/tiny")


def png(width: int = 64, height: int = 48) -> bytes:
    memory = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), 90, np.uint8)).save(memory, format="PNG")
    return memory.getvalue()


def image(data: bytes | None = None) -> ModalPart:
    return ModalPart(modality=Modality.IMAGE, data=data or png())


EDIT = Request(prompt="make it red", model="bagel/tiny", task=TaskType.EDIT, inputs=(image(),))


def code(request: Request, card: Any = BAGEL) -> str:
    with pytest.raises(RequestError) as caught:
        resolve(request, card, Numerics.EXACT)
    return caught.value.code


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(["bagel/tiny"], device="cpu") as engine:
        yield engine


def test_input_that_is_missing_or_too_many_or_of_another_kind_is_refused() -> None:
    assert code(replace(EDIT, inputs=())) == "FV308"
    assert code(replace(EDIT, inputs=(image(), image()))) == "FV308"
    assert code(replace(EDIT, inputs=(replace(image(), modality=Modality.ACTION),))) == "FV308"
    assert code(replace(EDIT, inputs=("photo.png",))) == "FV308"  # type: ignore[arg-type]
    assert code(replace(EDIT, task=TaskType.T2I)) == "FV308"


def test_optional_input_may_be_left_out() -> None:
    asked = Request(prompt="what?", model="bagel/tiny", task=TaskType.QA)
    assert resolve(asked, BAGEL, Numerics.EXACT).inputs == ()
    assert len(resolve(replace(asked, inputs=(image(),)), BAGEL, Numerics.EXACT).inputs) == 1


def test_image_gives_its_size_and_is_told_by_its_hash() -> None:
    settled = settle(EDIT, BAGEL, Numerics.EXACT)
    assert settled.request.size == Size(64, 48)
    assert settled.request.inputs[0].sha256 == hashlib.sha256(png()).hexdigest()
    assert settled.inputs.contents["request.image"].shape == (48, 64, 3)


def test_image_off_the_grid_is_refused_with_the_nearest_size() -> None:
    with pytest.raises(RequestError, match="63x48") as caught:
        resolve(replace(EDIT, inputs=(image(png(63, 48)),)), BAGEL, Numerics.EXACT)
    assert caught.value.code == "FV302"
    assert "64x48" in caught.value.remedy


@pytest.mark.parametrize(
    ("task", "delta", "expected"),
    [
        (TaskType.T2I, {"frames": 5}, "FV303"),
        (TaskType.QA, {"steps": 4}, "FV304"),
        (TaskType.QA, {"size": (32, 32)}, "FV302"),
    ],
)
def test_number_that_the_task_settles_is_refused(
    task: TaskType, delta: dict[str, Any], expected: str
) -> None:
    assert code(Request(prompt="x", model="bagel/tiny", task=task, **delta)) == expected


def test_repeated_request_takes_the_same_file_and_no_other(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(png())
    asked = replace(EDIT, inputs=(ModalPart(modality=Modality.IMAGE, path=str(file)),))
    settled = resolve(asked, BAGEL, Numerics.EXACT)
    assert resolve(as_stated(settled), BAGEL, Numerics.EXACT) == settled
    file.write_bytes(png(32, 32))
    with pytest.raises(RequestError, match="has changed") as caught:
        resolve(as_stated(settled), BAGEL, Numerics.EXACT)
    assert caught.value.code == "FV320"


def test_file_that_is_gone_does_not_stop_a_resume(engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(png())
    asked = replace(EDIT, inputs=(ModalPart(modality=Modality.IMAGE, path=str(file)),), steps=3, seed=1)
    expected = engine.run(asked).frames
    job = engine.start(asked)
    job.step()
    taken = engine.snapshot(job)
    job.close()
    file.unlink()
    again = engine.resume(taken)
    while not again.done:
        again.step()
    assert np.array_equal(engine.clip(again).frames, expected)
    again.close()


def test_parameter_that_the_task_ignores_is_refused(engine: Engine) -> None:
    with pytest.raises(RequestError, match="is not read by task qa") as caught:
        engine.run(Request(prompt="x", model="bagel/tiny", task=TaskType.QA, params={"shift": 2.0}))
    assert caught.value.code == "FV310"


def test_parameter_that_only_what_is_left_out_reads_is_told(engine: Engine) -> None:
    asked = Request(prompt="x", model="bagel/tiny", seed=1, steps=2, params={"max_tokens": 3})
    assert any("max_tokens is not used" in note for note in engine.run(asked).used.adjusted)
    thinks = replace(asked, params={"max_tokens": 3, "think": True})
    assert not any("max_tokens" in note for note in engine.run(thinks).used.adjusted)


def test_every_settled_request_can_be_stated_again(engine: Engine) -> None:
    for task in (TaskType.T2I, TaskType.QA):
        settled = resolve(Request(prompt="x", model="bagel/tiny", task=task, seed=1), BAGEL, Numerics.EXACT)
        again = as_stated(settled)
        assert resolve(again, BAGEL, Numerics.EXACT) == settled
        engine.plan(again)


def test_negative_prompt_that_the_task_ignores_is_refused() -> None:
    assert code(Request(prompt="x", model="bagel/tiny", negative_prompt="red")) == "FV310"
