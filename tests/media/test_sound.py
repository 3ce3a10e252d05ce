"""Sound beside frames: both streams of one mp4, their lengths, and what each format holds."""

from __future__ import annotations

import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from fv_core.errors import RequestError, RunError
from fv_core.media.audio import Audio, audio_from_waveform
from fv_core.media.formats import FORMATS, check_artifacts, check_sound
from fv_core.media.video import AAC_BLOCK, encode_mp4

FRAMES = np.random.default_rng(0).integers(0, 255, (17, 32, 48, 3), dtype=np.uint8)


def tone(seconds: float, rate: int, channels: int = 2) -> Audio:
    at = np.arange(round(seconds * rate), dtype=np.float32) / rate
    return Audio(
        samples=np.stack([np.sin(440 * 2 * np.pi * at) * 0.5] * channels).astype(np.float32), rate=rate
    )


def seconds(stream: av.VideoStream | av.AudioStream) -> float:
    assert stream.duration is not None and stream.time_base is not None
    return float(stream.duration * stream.time_base)


@pytest.mark.parametrize("longer", [-0.05, 0.0, 0.08])
@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (16000, 2), (48000, 2), (44100, 1)])
def test_mp4_holds_both_streams_of_equal_length(
    rate: int, channels: int, longer: float, tmp_path: Path
) -> None:
    fps = Fraction(24)
    audio = tone(float(len(FRAMES) / fps) + longer, rate, channels)
    file = tmp_path / "a.mp4"
    file.write_bytes(encode_mp4(FRAMES, fps, "", audio))
    with av.open(str(file)) as container:
        video, sound = container.streams.video[0], container.streams.audio[0]
        assert (video.codec_context.name, sound.codec_context.name) == ("h264", "aac")
        assert (sound.rate, sound.codec_context.channels) == (rate, channels)
        lengths = [seconds(one) for one in (video, sound)]
        assert abs(lengths[0] - lengths[1]) <= AAC_BLOCK / rate
        heard = np.concatenate([frame.to_ndarray() for frame in container.decode(sound)], axis=1)
    part = slice(AAC_BLOCK, 2 * AAC_BLOCK)
    shifts = (
        np.corrcoef(np.roll(heard[0], -by)[part], audio.samples[0][part])[0, 1] for by in (0, AAC_BLOCK)
    )
    assert max(shifts) > 0.9  # a decoder may or may not take the encoder's delay away


def test_equal_sound_gives_equal_bytes() -> None:
    one, other = (encode_mp4(FRAMES, Fraction(16), "", tone(1.0, 16000)) for _ in range(2))
    assert one == other
    assert encode_mp4(FRAMES, Fraction(16), "", None) != one


def test_rate_that_aac_cannot_code_is_refused_and_wav_takes_it() -> None:
    with pytest.raises(RequestError) as caught:
        check_sound(FORMATS[".mp4"], 16)
    assert caught.value.code == "FV315"
    assert "8000" in str(caught.value.legal)
    check_sound(FORMATS[".wav"], 16)


def test_wav_holds_the_samples(tmp_path: Path) -> None:
    from fv_core.media.audio import encode_wav

    audio = tone(0.1, 8000)
    file = tmp_path / "a.wav"
    file.write_bytes(encode_wav(audio))
    with wave.open(str(file)) as read:
        assert (read.getnchannels(), read.getframerate(), read.getnframes()) == (2, 8000, 800)
        stored = np.frombuffer(read.readframes(800), "<i2").reshape(-1, 2).T / 32767
    assert np.abs(stored - audio.samples).max() <= 0.5 / 32767 + 1e-7


@pytest.mark.parametrize(
    ("suffix", "yielded", "legal"),
    [(".mp4", ("text",), ".txt"), (".wav", ("video",), ".mp4"), (".txt", ("video", "audio"), ".wav")],
)
def test_format_that_holds_nothing_of_the_run_is_refused(
    suffix: str, yielded: tuple[str, ...], legal: str
) -> None:
    with pytest.raises(RequestError) as caught:
        check_artifacts(FORMATS[suffix], yielded)
    assert legal in str(caught.value.legal)


def test_npy_takes_actions_where_there_are_no_frames() -> None:
    check_artifacts(FORMATS[".npy"], ("action",))


@pytest.mark.parametrize(
    ("waveform", "code"),
    [
        (torch.tensor([[0.0, float("nan")]]), "FV501"),
        (torch.tensor([[0.0, 1.5]]), "FV502"),
        (torch.zeros(3, 10), "FV502"),
        (torch.zeros(10), "FV502"),
    ],
)
def test_what_is_no_sound_is_refused(waveform: torch.Tensor, code: str) -> None:
    with pytest.raises(RunError) as caught:
        audio_from_waveform(waveform, 8000)
    assert caught.value.code == code
