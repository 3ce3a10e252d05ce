"""What a request can ask for, and what it can bring."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TaskType(StrEnum):
    """Declared by the request, never inferred from the inputs. Values are the names used in cards and on the CLI."""

    T2V = "t2v"


class Modality(StrEnum):
    """The kind of an input part."""

    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalPart:
    """One input that is not text: what it is, and the file that holds it."""

    modality: Modality
    path: str
