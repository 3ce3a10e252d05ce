"""Which model a request without one gets, and what stands in the way where there is none."""

from __future__ import annotations

import pytest

from fv_core.errors import PluginError
from fv_core.plugins import Registry, plugin_records
from fv_core.plugins.allow import allowed
from fv_core.runtime.models import default_model


def leave(monkeypatch: pytest.MonkeyPatch, registry: Registry) -> None:
    monkeypatch.setattr("fv_core.plugins.registry.default_registry", lambda: registry)


def refusal() -> PluginError:
    with pytest.raises(PluginError) as caught:
        default_model()
    assert caught.value.code == "FV106"
    return caught.value


def test_the_trained_model_is_the_default() -> None:
    assert default_model().model_id == "wan21/tiny"


@pytest.mark.parametrize(("names", "by"), [("", "FV_PLUGINS"), ("ltx2,bagel", "--plugins")])
def test_a_default_that_is_left_out_is_told_so(names: str, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, Registry(allowed(plugin_records(), names, by)))
    error = refusal()
    assert f"is blocked: {by} is {names!r}" in error.rule
    assert f"Add wan21 to {by}" in error.remedy
    assert "nstall" not in error.remedy
    assert ("ltx2/tiny" in error.legal) is (names != "")


def test_where_nothing_is_installed_the_plugin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    leave(monkeypatch, Registry(()))
    error = refusal()
    assert (error.legal, error.remedy) == ("no model plugin is installed", "Install fv-wan21.")
