"""The names that fv exports are pinned, and each of them resolves."""

from __future__ import annotations

import pytest

import fv_core
import fv_wan21

EXPORTED = [
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


def test_core_exports_exactly_the_pinned_names() -> None:
    assert fv_core.__all__ == EXPORTED
    assert dir(fv_core) == EXPORTED


@pytest.mark.parametrize("name", EXPORTED)
def test_exported_name_resolves(name: str) -> None:
    assert getattr(fv_core, name) is not None


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Pipeline'"):
        _ = fv_core.Pipeline


def test_plugin_exports_its_hooks_alone() -> None:
    assert fv_wan21.__all__ == ["fv_api", "fv_cards"]
