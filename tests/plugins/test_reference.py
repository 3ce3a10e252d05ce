"""References: `module:attr` strings, resolved or refused with one error."""

from __future__ import annotations

import pytest

from fv_core.errors import PluginError
from fv_core.plugins.reference import resolve_reference


def test_reference_gives_the_object_it_names() -> None:
    from fv_core.loop.flow_denoise import FlowDenoise

    assert resolve_reference("fv_core.loop.flow_denoise:FlowDenoise", owner="card") is FlowDenoise


@pytest.mark.parametrize(
    "reference", ["absent.module:x", "fv_core.errors:Absent", "fv_core.errors", ":x", "", "a b:c"]
)
def test_what_does_not_resolve_is_refused_by_name(reference: str) -> None:
    with pytest.raises(PluginError) as caught:
        resolve_reference(reference, owner="card toy/tiny loop denoise")
    assert caught.value.code == "FV105"
    assert "toy/tiny" in caught.value.message
    assert repr(reference) in caught.value.message
