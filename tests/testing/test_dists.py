"""The fixtures for authors: distributions that are found and imported, in a registry that knows no other."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

from fv_core.errors import PluginError
from fv_core.plugins import PluginState, default_registry
from fv_core.testing import FakeDist
from fv_core.testing.dists import fake_dist as fixture

GOOD = "fv_api = 1\n"


def test_a_fake_plugin_is_found_and_loads(fake_dist: FakeDist, registry: Any) -> None:
    fake_dist("quiet", GOOD, version="2.5")
    (record,) = registry().check()
    assert (record.name, record.dist, record.version) == ("quiet", "fv-quiet", "2.5")
    assert record.state is PluginState.READY
    assert registry().load("quiet").cards == ()


def test_the_registry_knows_what_was_written_and_nothing_that_is_installed(
    fake_dist: FakeDist, registry: Any
) -> None:
    assert registry().records() == ()
    fake_dist("one", GOOD)
    fake_dist("two", GOOD)
    assert [record.name for record in registry().records()] == ["one", "two"]
    with pytest.raises(PluginError, match="not installed"):
        registry().find_card("wan21/micro")


def test_the_registry_of_the_process_finds_them_beside_what_is_installed(fake_dist: FakeDist) -> None:
    fake_dist("beside", GOOD)
    assert {"beside", "wan21"} <= {record.name for record in default_registry().records()}


def test_nothing_stays_after_a_test(tmp_path: Path) -> None:
    unwrapped: Any = inspect.unwrap(fixture)
    with pytest.MonkeyPatch.context() as patch:
        written = unwrapped(tmp_path, patch)
        next(written)("gone", GOOD)
        assert default_registry().load("gone").cards == ()
        assert "fv_gone" in sys.modules
        assert next(written, None) is None
    assert "fv_gone" not in sys.modules
    assert "gone" not in {record.name for record in default_registry().records()}


@pytest.mark.parametrize(
    ("facts", "state", "code"),
    [
        ({"source": "raise RuntimeError\n"}, PluginState.BROKEN, "FV102"),
        ({"source": "import absent_module\n"}, PluginState.BROKEN, "FV114"),
        ({"source": None}, PluginState.BROKEN, "FV102"),
        ({"source": "fv_api = 99\n"}, PluginState.INCOMPATIBLE, "FV103"),
        ({"source": GOOD, "requires": ("fv-core>=99",)}, PluginState.INCOMPATIBLE, "FV109"),
    ],
    ids=["import error", "absent dependency", "no package", "another api", "newer core"],
)
def test_broken_kinds_are_told_apart(
    facts: dict[str, Any], state: PluginState, code: str, fake_dist: FakeDist, registry: Any
) -> None:
    fake_dist("trouble", **facts)
    (record,) = registry().check()
    assert (record.state, record.code) == (state, code)


def test_two_distributions_can_claim_one_name(fake_dist: FakeDist, registry: Any) -> None:
    fake_dist("twice", GOOD)
    fake_dist("twice", GOOD, dist="fv-other")
    assert [record.state for record in registry().records()] == [PluginState.CONFLICT] * 2


def test_a_strict_registry_raises(fake_dist: FakeDist, registry: Any) -> None:
    fake_dist("trouble", "import absent_module\n")
    assert registry().cards() == []
    with pytest.raises(PluginError):
        registry(strict=True).cards()


def test_a_distribution_can_have_several_entry_points(fake_dist: FakeDist, registry: Any) -> None:
    fake_dist("both", GOOD, points={"left": "fv_both", "right": "fv_both"})
    assert [record.name for record in registry().records()] == ["left", "right"]
