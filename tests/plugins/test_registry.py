"""Registries: isolated from each other, filtered by `FV_PLUGINS`, strict where asked, and the same in a worker."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fv_core.errors import FvError
from fv_core.plugins import PluginRecord, PluginState, Registry, default_registry, find_card, worker_registry
from fv_core.plugins.allow import allowed
from fv_core.plugins.discovery import discover

Install = Callable[..., Path]


def error_of(call: Callable[[], object]) -> FvError:
    with pytest.raises(FvError) as caught:
        call()
    return caught.value


def test_a_registry_knows_its_own_records_alone(install_dists: Install) -> None:
    site = install_dists("good")
    alone = Registry(discover([str(site)]))
    assert [record.name for record in alone.records()] == ["good"]
    assert alone.records()[0].state is PluginState.DISCOVERED
    assert [card.model_id for card in alone.cards()] == ["good/tiny"]
    assert alone.records()[0].state is PluginState.READY
    assert default_registry().records()[0].state is PluginState.DISCOVERED
    assert Registry(()).cards() == []
    assert error_of(lambda: Registry(()).find_card("good/tiny")).code == "FV101"


def test_only_the_named_plugin_is_imported(install_dists: Install) -> None:
    install_dists()
    assert find_card("good/tiny")
    assert not any(name.startswith(("fv_import_error", "fv_raising", "fv_few")) for name in sys.modules)


@pytest.mark.parametrize(
    ("names", "left"), [("", []), ("good", ["good"]), (" good , wan21,", ["good", "wan21"])]
)
def test_fv_plugins_blocks_what_it_leaves_out(
    names: str, left: list[str], install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good", "raising_cards")
    monkeypatch.setenv("FV_PLUGINS", names)
    registry = default_registry()
    assert [record.name for record in registry.records() if record.state is not PluginState.BLOCKED] == left
    assert registry.errors() == {}
    assert {card.model_id.partition("/")[0] for card in registry.cards()} == set(left)
    assert error_of(lambda: find_card("raising-cards/tiny")).code == "FV111"
    assert repr(names) in error_of(lambda: find_card("raising-cards/tiny")).message
    assert "fv_raising_cards" not in sys.modules


def test_unknown_name_in_fv_plugins_is_refused_with_what_is_close(
    install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good")
    monkeypatch.setenv("FV_PLUGINS", "wan21,goood")
    error = error_of(default_registry)
    assert (error.code, error.entry.exit_code) == ("FV112", 3)
    assert "'goood'" in error.message
    assert error.remedy == "Did you mean good?"


def test_unset_fv_plugins_allows_all() -> None:
    records = discover()
    assert allowed(records, None) == records


def test_what_fv_plugins_blocks_is_no_trouble_in_strict_mode(
    install_dists: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_dists("good", "raising_cards", "incompatible")
    monkeypatch.setenv("FV_STRICT_PLUGINS", "1")
    assert error_of(lambda: default_registry().cards()).code == "FV109"
    default_registry.cache_clear()
    monkeypatch.setenv("FV_PLUGINS", "good")
    assert [card.model_id for card in default_registry().cards()] == ["good/tiny"]
    default_registry.cache_clear()
    monkeypatch.setenv("FV_STRICT_PLUGINS", "0")
    monkeypatch.delenv("FV_PLUGINS")
    assert default_registry().cards()


def test_unknown_plugin_is_refused_with_what_is_close() -> None:
    error = error_of(lambda: default_registry().load("wan2"))
    assert (error.code, error.remedy) == ("FV113", "Did you mean wan21?")
    assert error_of(lambda: Registry(()).findings("x")).legal == "no plugin is installed"


def test_every_finding_is_kept_and_the_first_is_raised(install_dists: Install) -> None:
    site = install_dists("few_steps")
    package = site / "fv_few_steps" / "__init__.py"
    package.write_text(package.read_text().replace("assumes_loop=SEMANTICS", 'assumes_loop="ar/v1"'))
    registry = Registry(discover([str(site)]))
    assert error_of(lambda: registry.load("few-steps")).code == "FV201"
    assert [finding.code for finding in registry.findings("few-steps")] == ["FV201", "FV203"]
    record = registry.records()[0]
    assert (record.state, record.code) == (PluginState.INVALID, "FV201")
    assert [line[:6] for line in record.reason.splitlines()] == ["FV201 ", "FV203 "]


def test_loading_again_gives_equal_records(install_dists: Install) -> None:
    site = install_dists("good", "raising_cards", "same_id")
    first, second = (Registry(discover([str(site)])) for _ in range(2))
    assert first.check() == second.check()
    assert first.cards() == second.cards()


def load_in_worker(pairs: list[tuple[str, str]]) -> tuple[list[PluginRecord], list[str]]:
    """What a worker process makes of its parent's plugins: records, and digests of their cards."""
    registry = worker_registry(pairs)
    records = list(registry.check())
    return records, [card.digest() for card in registry.cards()]


def test_a_worker_rebuilds_the_registry_from_names_and_versions(install_dists: Install) -> None:
    site = install_dists("good")
    registry = Registry(tuple(record for record in discover() if record.name in ("good", "wan21")))
    records, digests = list(registry.check()), [card.digest() for card in registry.cards()]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        theirs = pool.apply(load_in_worker, ([(one.name, one.version) for one in records],))
    assert theirs == (records, digests)
    assert records[0].location == str(site)


def test_a_worker_refuses_another_version() -> None:
    (record,) = (record for record in discover() if record.name == "wan21")
    assert worker_registry([(record.name, record.version)]).records() == (record,)
    other = error_of(lambda: worker_registry([("wan21", "9.9")]))
    assert (other.code, "version 0.1.0 is here" in other.message) == ("FV118", True)
    assert "absent" in error_of(lambda: worker_registry([("nowhere", "1")])).message


def test_record_of_a_card_tells_the_plugin_that_brings_it() -> None:
    registry, card = default_registry(), find_card("wan21/micro")
    record = registry.record_of(card)
    assert record is not None
    assert (str(record), record.state) == ("fv-wan21 0.1.0", PluginState.READY)
    assert record.title.startswith("plugin wan21 (fv-wan21 0.1.0, ")
    assert registry.record_of(replace(card, model_id="mine/tiny")) is None
