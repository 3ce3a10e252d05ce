"""The keywords of `fv.generate`: those it has make a clip, any other is told with what may have been meant."""

from __future__ import annotations

from typing import Any

import pytest

import fv_core as fv
from fv_core.errors import RequestError


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shift": 5}, "'shift', a parameter of wan21/micro: use params={'shift': 5}"),
        ({"shfit": 5}, "did you mean params={'shift': 5}?"),
        ({"stpes": 3}, "'stpes'; did you mean steps?"),
        ({"weigths": "w"}, "did you mean weights?"),
        ({"zzz": 1}, "'zzz'; it takes adapters, device, dtype, "),
    ],
)
def test_an_unknown_keyword_is_told_with_what_was_meant(given: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError) as caught:
        fv.generate("a red circle", model="wan21/micro", **given)
    assert told in str(caught.value)


@pytest.mark.parametrize("size", ["64x64", " 64 X 64 "])
def test_a_size_as_text_is_told_as_a_pair(size: str) -> None:
    with pytest.raises(RequestError) as caught:
        fv.generate("a red circle", model="wan21/micro", size=size)
    assert (caught.value.code, caught.value.value) == ("FV302", size)
    assert "is not width and height" in str(caught.value)
    assert "Give size=(64, 64)" in str(caught.value)
