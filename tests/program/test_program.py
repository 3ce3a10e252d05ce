"""Programs: which nodes a request runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fv_core.program import Compare, When, text_to_video
from fv_core.request import Numerics, ResolvedRequest, Size, TaskType

REQUEST = ResolvedRequest(
    model="toy/tiny", task=TaskType.T2V, prompt="p", negative_prompt="n", seed=0, size=Size(64, 64), frames=5, fps=8.0,
    steps=4, guidance=5.0, numerics=Numerics.EXACT, params={},
)  # fmt: skip
PROGRAM = text_to_video(encode="text", denoise="denoise", decode="decode")


@pytest.mark.parametrize(
    ("compare", "value", "holds"),
    [
        (Compare.GREATER, 3.0, True),
        (Compare.GREATER, 4.0, False),
        (Compare.EQUAL, 4.0, True),
        (Compare.EQUAL, 5.0, False),
    ],
)
def test_condition_compares_a_number_of_the_request(compare: Compare, value: float, holds: bool) -> None:
    assert When(field="steps", compare=compare, value=value).holds(REQUEST) is holds


def test_negative_prompt_is_encoded_only_with_guidance() -> None:
    guided = [node.id for node in PROGRAM.active(REQUEST)]
    unguided = [node.id for node in PROGRAM.active(replace(REQUEST, guidance=1.0))]
    assert guided == ["encode", "encode_negative", "denoise", "decode"]
    assert unguided == ["encode", "denoise", "decode"]


def test_text_to_video_yields_what_its_last_node_writes() -> None:
    assert PROGRAM.artifacts == {"video": "video"}
    assert "video" in PROGRAM.nodes[-1].writes.values()
