"""fv: a runtime for video-diffusion models, where a model is a card: weights and the loop that assumes them.

The words, used in one meaning everywhere: a *request* runs one *program* of a *card*; a program's nodes are
*components* and *loops*; a loop takes *steps*; each step is a *plan* of *calls* that the executor runs.
Importing this package loads neither torch nor numpy; names below load what they need when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from fv_core.card import ComponentSpec, LoopSpec, ModelCard, RecipeSpec, derive
    from fv_core.errors import Cancelled, FvError
    from fv_core.extend import Interceptor, InterceptorSpec
    from fv_core.hookspecs import hookimpl
    from fv_core.media import Audio, Clip
    from fv_core.program import text_to_video
    from fv_core.request import (
        Adapter,
        CancelScope,
        Failed,
        Finished,
        Loading,
        MediaChunk,
        Modality,
        ModalPart,
        Numerics,
        OutputSpec,
        Priority,
        Request,
        RequestEvent,
        Started,
        StepDone,
        TaskType,
    )
    from fv_core.runtime.async_engine import AsyncEngine
    from fv_core.runtime.async_job import AsyncJob
    from fv_core.runtime.engine import Engine
    from fv_core.runtime.generate import generate
    from fv_core.runtime.together import Result
    from fv_core.training.run import train
    from fv_core.training.trainer import RunResult

_HOMES = {
    "fv_core.card": ("ComponentSpec", "LoopSpec", "ModelCard", "RecipeSpec", "derive"),
    "fv_core.errors": ("Cancelled", "FvError"),
    "fv_core.extend": ("Interceptor", "InterceptorSpec"),
    "fv_core.hookspecs": ("hookimpl",),
    "fv_core.media": ("Audio", "Clip"),
    "fv_core.program": ("text_to_video",),
    "fv_core.request": (
        "Adapter",
        "CancelScope",
        "Failed",
        "Finished",
        "Loading",
        "MediaChunk",
        "ModalPart",
        "Modality",
        "Numerics",
        "OutputSpec",
        "Priority",
        "Request",
        "RequestEvent",
        "Started",
        "StepDone",
        "TaskType",
    ),
    "fv_core.runtime.async_engine": ("AsyncEngine",),
    "fv_core.runtime.async_job": ("AsyncJob",),
    "fv_core.runtime.engine": ("Engine",),
    "fv_core.runtime.generate": ("generate",),
    "fv_core.runtime.together": ("Result",),
    "fv_core.training.run": ("train",),
    "fv_core.training.trainer": ("RunResult",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Adapter",
    "AsyncEngine",
    "AsyncJob",
    "Audio",
    "CancelScope",
    "Cancelled",
    "Clip",
    "ComponentSpec",
    "Engine",
    "Failed",
    "Finished",
    "FvError",
    "Interceptor",
    "InterceptorSpec",
    "Loading",
    "LoopSpec",
    "MediaChunk",
    "ModalPart",
    "Modality",
    "ModelCard",
    "Numerics",
    "OutputSpec",
    "Priority",
    "RecipeSpec",
    "Request",
    "RequestEvent",
    "Result",
    "RunResult",
    "Started",
    "StepDone",
    "TaskType",
    "__version__",
    "derive",
    "generate",
    "hookimpl",
    "text_to_video",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fv_core' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
