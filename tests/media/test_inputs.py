"""Inputs of a request: read by their bytes, measured before they are decoded, and refused with a reason."""

from __future__ import annotations

import io
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from fv_core.errors import RequestError
from fv_core.media import inputs
from fv_core.media.audio import Audio, encode_wav
from fv_core.media.inputs import decode_part, read_part
from fv_core.media.video import encode_mp4, encode_webm
from fv_core.request import Modality, ModalPart

RNG = np.random.default_rng(1)
PICTURE = RNG.integers(0, 255, (20, 30, 3), dtype=np.uint8)
FRAMES = RNG.integers(0, 255, (5, 32, 48, 3), dtype=np.uint8)
SOUND = Audio(samples=np.sin(np.arange(1600, dtype=np.float32) / 9)[None], rate=8000)


def image_bytes(form: str, mode: str = "RGB", **options: Any) -> bytes:
    memory = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(memory, format=form, **options)
    return memory.getvalue()


def array_bytes(array: npt.NDArray[Any], **options: bool) -> bytes:
    memory = io.BytesIO()
    np.save(memory, array, **options)
    return memory.getvalue()


def part(modality: Modality, data: bytes) -> ModalPart:
    return ModalPart(modality=modality, data=data)


def decoded(modality: Modality, data: bytes) -> inputs.DecodedInput:
    return decode_part(part(modality, data), data)


def code(modality: Modality, data: bytes) -> str:
    with pytest.raises(RequestError) as caught:
        decoded(modality, data)
    return caught.value.code


def outcome(modality: Modality, data: bytes) -> str:
    try:
        decoded(modality, data)
    except RequestError as error:
        return error.code
    return "taken"


def test_images_come_as_they_are() -> None:
    assert np.array_equal(decoded(Modality.IMAGE, image_bytes("PNG")).content, PICTURE)
    assert decoded(Modality.IMAGE, image_bytes("JPEG")).content.shape == PICTURE.shape
    assert np.array_equal(decoded(Modality.IMAGE, image_bytes("WEBP", lossless=True)).content, PICTURE)


def test_image_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned
    turned = decoded(Modality.IMAGE, image_bytes("PNG", exif=exif.tobytes())).content
    assert np.array_equal(turned, np.rot90(PICTURE, -1))


def test_what_is_left_out_of_an_image_is_told() -> None:
    assert decoded(Modality.IMAGE, image_bytes("PNG")).notes == ()
    (note,) = decoded(Modality.IMAGE, image_bytes("PNG", "RGBA")).notes
    assert "transparency" in note


def test_videos_come_frame_by_frame() -> None:
    for data in (encode_mp4(FRAMES, Fraction(8), ""), encode_webm(FRAMES, Fraction(8), "")):
        content = decoded(Modality.VIDEO, data).content
        assert content.shape == FRAMES.shape
        assert content.dtype == np.uint8


def test_sound_comes_in_channels() -> None:
    content = decoded(Modality.AUDIO, encode_wav(SOUND)).content
    assert content.shape == SOUND.samples.shape
    assert content.dtype == np.float32
    assert np.abs(content - SOUND.samples).max() < 1e-4
    mp4 = encode_mp4(FRAMES, Fraction(8), "", SOUND)
    assert decoded(Modality.AUDIO, mp4).content.shape[0] == 1


def test_actions_come_as_rows() -> None:
    actions = RNG.normal(size=(4, 7))
    assert np.array_equal(decoded(Modality.ACTION, array_bytes(actions)).content, actions.astype(np.float32))


@pytest.mark.parametrize(
    ("modality", "data"),
    [
        (Modality.IMAGE, encode_wav(SOUND)),
        (Modality.IMAGE, image_bytes("GIF")),
        (Modality.IMAGE, image_bytes("PNG")[:60]),
        (Modality.VIDEO, encode_wav(SOUND)),
        (Modality.VIDEO, image_bytes("PNG")),
        (Modality.VIDEO, b"\x00" * 200),
        (Modality.AUDIO, encode_mp4(FRAMES, Fraction(8), "")),
        (Modality.AUDIO, b"RIFF"),
        (Modality.ACTION, array_bytes(np.zeros((2, 2), np.int64))),
        (Modality.ACTION, array_bytes(np.zeros(3))),
        (Modality.ACTION, array_bytes(np.full((2, 2), np.nan))),
        (Modality.ACTION, array_bytes(np.array([[object()]]), allow_pickle=True)),
        (Modality.ACTION, pickle.dumps([1.0])),
    ],
    ids=repr,
)
def test_what_is_not_of_the_kind_is_refused(modality: Modality, data: bytes) -> None:
    assert code(modality, data) == "FV320"


@given(st.sampled_from(Modality), st.binary(max_size=400))
def test_any_bytes_are_taken_or_refused(modality: Modality, data: bytes) -> None:
    assert outcome(modality, data) in ("taken", "FV320", "FV321")


@given(st.integers(0, 400), st.integers(0, 255))
def test_damaged_files_are_taken_or_refused(at: int, byte: int) -> None:
    for modality, whole in ((Modality.IMAGE, image_bytes("PNG")), (Modality.AUDIO, encode_wav(SOUND))):
        data = bytearray(whole)
        data[at % len(data)] = byte
        assert outcome(modality, bytes(data)) in ("taken", "FV320", "FV321")


def test_size_is_measured_before_anything_is_decoded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(image_bytes("PNG"))
    monkeypatch.setattr(inputs, "MAX_DECODED", 100)
    assert code(Modality.IMAGE, file.read_bytes()) == "FV321"
    assert code(Modality.VIDEO, encode_mp4(FRAMES, Fraction(8), "")) == "FV321"
    assert code(Modality.AUDIO, encode_wav(SOUND)) == "FV321"
    monkeypatch.setattr(inputs, "MAX_BYTES", dict.fromkeys(Modality, 10))
    with pytest.raises(RequestError) as caught:
        read_part(ModalPart(modality=Modality.IMAGE, path=str(file)))
    assert caught.value.code == "FV321"


@pytest.mark.parametrize(
    "given_part",
    [
        ModalPart(modality=Modality.IMAGE),
        ModalPart(modality=Modality.IMAGE, path="a.png", data=b"x"),
        ModalPart(modality=Modality.IMAGE, path="absent/a.png"),
        ModalPart(modality=Modality.IMAGE, path="."),
        ModalPart(modality=Modality.IMAGE, path="a\x00b"),
    ],
    ids=repr,
)
def test_part_without_one_readable_source_is_refused(given_part: ModalPart) -> None:
    with pytest.raises(RequestError) as caught:
        read_part(given_part)
    assert caught.value.code == "FV320"


def test_sound_of_more_channels_than_anything_plays_is_refused() -> None:
    data = bytearray(encode_wav(SOUND))
    data[22:24] = (13).to_bytes(2, "little")
    assert code(Modality.AUDIO, bytes(data)) == "FV320"


def test_video_that_is_cut_short_is_refused() -> None:
    whole = encode_mp4(FRAMES, Fraction(8), "")
    outcomes = {outcome(Modality.VIDEO, whole[:end]) for end in range(len(whole) // 2, len(whole), 7)}
    assert outcomes == {"FV320"}


def test_list_of_other_files_is_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.mp4").write_bytes(encode_mp4(FRAMES, Fraction(8), ""))
    assert code(Modality.VIDEO, b"ffconcat version 1.0\nfile secret.mp4\n") == "FV320"


def test_picture_of_more_than_8_bits_is_refused_not_whitened() -> None:
    memory = io.BytesIO()
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100).save(memory, format="PNG")
    assert code(Modality.IMAGE, memory.getvalue()) == "FV320"


@pytest.mark.parametrize("header", ["(1000000000000, 2)", "-" * 9000 + "1"], ids=["large", "odd"])
def test_header_of_actions_that_lies_is_refused(header: str) -> None:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {header}, }}".encode()
    text += b" " * (64 - (10 + len(text) + 1) % 64) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    assert code(Modality.ACTION, data) in ("FV320", "FV321")


def test_number_too_large_for_32_bits_is_refused() -> None:
    assert code(Modality.ACTION, array_bytes(np.full((2, 2), 1e300))) == "FV320"


def test_device_without_end_is_refused() -> None:
    with pytest.raises(RequestError, match="no regular file") as caught:
        read_part(ModalPart(modality=Modality.IMAGE, path="/dev/zero"))
    assert caught.value.code == "FV320"
