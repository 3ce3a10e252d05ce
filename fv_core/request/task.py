"""What a request can ask for, and what it can bring."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaskType(StrEnum):
    """Declared by the request, never inferred from the inputs. Values are the names used in cards and on the CLI.

    t2v, t2i: text to video, to image. i2v, v2v: an image or a video goes on as a video. edit: an image and text to
    an image. qa: a question, on an image or not, to text. policy: an image and text to a video and the actions
    that lead to it. forward-dynamics: an image and actions to a video. inverse-dynamics: a video to its actions.
    """

    T2V = "t2v"
    T2I = "t2i"
    I2V = "i2v"
    V2V = "v2v"
    EDIT = "edit"
    QA = "qa"
    POLICY = "policy"
    FORWARD_DYNAMICS = "forward-dynamics"
    INVERSE_DYNAMICS = "inverse-dynamics"


class Modality(StrEnum):
    """The kind of an input part that is not text."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"
    ACTION = "action"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalPart:
    """One input that is not text: what it is, and the file that holds it or its bytes.

    `sha256`, in hex, refuses other bytes than these. Image: PNG, JPEG or WebP. Video: MP4, MOV, WebM or MKV. Audio:
    WAV, MP3, FLAC, OGG or MP4. Action: a `.npy` of floats [T, D]. What the bytes are is read from the bytes; a suffix
    proves nothing.
    """

    modality: Modality
    path: str = ""
    data: bytes = b""
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedInput:
    """An input as a run took it: the file it came from ("" for bytes) and the sha256 of its bytes, in hex."""

    modality: Modality
    path: str
    sha256: str
