"""Sidecars give back the request and what was used, bit for bit, or say that they are none."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fv_core.errors import RequestError
from fv_core.media import Clip, Sidecar, read_sidecar, write_sidecar


def test_sidecar_gives_back_what_was_written(
    clip_of: Callable[..., Clip], circle: Clip, tmp_path: Path
) -> None:
    clip = clip_of(circle.frames, fps=30000 / 1001, prompt='Ünï "quoted" 🙂 e\u0301\n\t\\', seed=2**64 - 1)
    request = dataclasses.replace(clip.request, guidance=0.1 + 0.2, params={"shift": 1e-300, "on": True})
    clip = dataclasses.replace(clip, request=request)
    saved = write_sidecar(tmp_path / "out.mp4", clip)
    assert saved == tmp_path / "out.mp4.json"
    assert read_sidecar(saved) == Sidecar(request=request, used=clip.used)
    enlarged = write_sidecar(tmp_path / "out.mp4", clip, scale=3, force=True)
    assert read_sidecar(enlarged).scale == 3


def test_a_sidecar_that_states_no_scale_is_of_a_clip_at_its_own(circle: Clip, tmp_path: Path) -> None:
    path = write_sidecar(tmp_path / "out.mp4", circle, scale=3)
    path.write_text(json.dumps(_without(json.loads(path.read_text()), "scale")))
    assert read_sidecar(path).scale == 1


def test_sidecar_holds_the_prompt_as_text(circle: Clip, tmp_path: Path) -> None:
    assert "Zebra quorum, naïve!" in write_sidecar(tmp_path / "out.mp4", circle).read_text("utf-8")


def test_sidecar_never_replaces_unless_told(circle: Clip, tmp_path: Path) -> None:
    (tmp_path / "out.mp4.json").write_text("mine")
    with pytest.raises(RequestError, match="exists already") as caught:
        write_sidecar(tmp_path / "out.mp4", circle)
    assert caught.value.code == "FV315"
    assert (tmp_path / "out.mp4.json").read_text() == "mine"
    assert read_sidecar(write_sidecar(tmp_path / "out.mp4", circle, force=True)).request == circle.request


def test_sidecar_in_a_missing_folder_is_refused(circle: Clip, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        write_sidecar(tmp_path / "missing" / "out.mp4", circle)


def _without(stored: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in stored.items() if name != key}


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "a list": lambda stored: [stored],
    "another schema": lambda stored: stored | {"schema": "fv-sidecar/2"},
    "no schema": lambda stored: _without(stored, "schema"),
    "no request": lambda stored: _without(stored, "request"),
    "an unknown field": lambda stored: stored | {"more": 1},
    "another class": lambda stored: stored | {"type": "Used"},
    "a text seed": lambda stored: stored | {"request": stored["request"] | {"seed": "7"}},
    "a broken float": lambda stored: stored | {"request": stored["request"] | {"fps": {"float": "abc"}}},
    "an unknown task": lambda stored: stored | {"request": stored["request"] | {"task": "t3v"}},
    "an object for a seed": lambda stored: stored | {"request": stored["request"] | {"seed": {}}},
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_other_json_is_no_sidecar(circle: Clip, tmp_path: Path, change: str) -> None:
    path = write_sidecar(tmp_path / "out.mp4", circle)
    path.write_text(json.dumps(CHANGES[change](json.loads(path.read_text()))))
    with pytest.raises(RequestError) as caught:
        read_sidecar(path)
    assert caught.value.code == "FV311"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"null", b"[" * 100_000, b'{"schema": "fv-sidecar/1"']
)
def test_other_files_are_no_sidecar(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.json").write_bytes(data)
    with pytest.raises(RequestError) as caught:
        read_sidecar(tmp_path / "x.json")
    assert caught.value.code == "FV311"


def test_a_missing_file_and_a_folder_are_no_sidecar(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "absent.json", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(RequestError) as caught:
            read_sidecar(path)
        assert (caught.value.code, caught.value.rule) == ("FV311", f"cannot be read: {why}")


def test_what_is_wrong_with_a_sidecar_is_told(circle: Clip, tmp_path: Path) -> None:
    path = write_sidecar(tmp_path / "out.mp4", circle)
    for text, why in (
        ("{", "it is not JSON (Expecting property name"),
        ("[]", "its schema is None, not 'fv-sidecar/1'"),
        ('{"schema": "fv-sidecar/9"}', "its schema is 'fv-sidecar/9', not 'fv-sidecar/1'"),
    ):
        path.write_text(text)
        with pytest.raises(RequestError) as caught:
            read_sidecar(path)
        assert caught.value.rule.startswith(f"is not a sidecar of this version of fv: {why}")
