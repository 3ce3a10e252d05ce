"""Results that requests share: computed once for all that are equal, found by everything that can change them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core import Adapter, CancelScope, Engine, FvError, Request, derive
from fv_core.errors import RequestError
from fv_core.extend import At, Interceptor, InterceptorSpec
from fv_core.loop import CallOutput, ComponentCall
from fv_core.media import Clip
from fv_core.plugins import find_card
from fv_core.request import Numerics
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.execution.executor import execute
from fv_core.runtime.execution.features import result_key
from fv_core.runtime.job import advance
from fv_core.testing.adapters import factors, write_adapter

Ask = Callable[..., Request]
MODEL = "wan21/micro"
SAMPLES = 24


def plain(monkeypatch: pytest.MonkeyPatch, watch: Any, **options: Any) -> Engine:
    """An engine with these options, watched instead of another; a call is a forward."""
    engine = Engine([MODEL], device="cpu", max_batch=1, **options)
    watch.put_on(engine, monkeypatch)
    return engine


def same(one: Clip, other: Clip) -> bool:
    return all(torch.equal(one.tensors[name], other.tensors[name]) for name in ("latent", "video"))


def clips(engine: Engine, requests: Sequence[Request], **options: Any) -> list[Clip]:
    results = engine.run_many(requests, **options)
    assert [result.error for result in results] == [None] * len(results)
    return [result.clip for result in results if result.clip is not None]


@pytest.mark.parametrize(
    ("numerics", "count"), [(Numerics.EXACT, SAMPLES), (Numerics.REFERENCE, 3), (Numerics.FAST, 3)]
)
def test_samples_of_one_prompt_encode_it_once_and_come_to_the_bits_of_those_that_share_nothing(
    numerics: Numerics, count: int, engine: Engine, watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = [ask(seed=seed, steps=1, frames=1, numerics=numerics) for seed in range(count)]
    made = clips(engine, samples)
    assert watch.sizes("text") == [1, 1]  # the prompt, and what guidance takes it from
    watch.forwards.clear()
    with plain(monkeypatch, watch, reuse=False) as alone:
        expected = clips(alone, samples[:3])
    assert sum(watch.sizes("text")) == 2 * 3
    if numerics is not Numerics.FAST:  # which promises no bits
        assert all(map(same, made, expected))


def test_a_later_request_finds_it_too_and_counters_tell(engine: Engine, watch: Any, ask: Ask) -> None:
    before = engine.counters()
    first, second = engine.run(ask()), engine.run(ask())
    assert watch.sizes("text") == [1, 1]
    assert same(first, second)
    assert engine.counters() == before, "nothing is held"
    feature = engine.counters().pools["feature"]
    assert (feature.entries, feature.idle_entries, feature.hits, feature.misses) == (2, 2, 2, 2)
    assert feature.bytes == feature.idle_bytes > 0
    engine.close()
    assert all(pool.bytes == pool.entries == 0 for pool in engine.counters().pools.values())


@pytest.mark.parametrize(("component", "encodes"), [("transformer", 0), ("text", 2)])
def test_an_adapter_on_the_encoder_encodes_again_and_one_on_the_transformer_does_not(
    component: str, encodes: int, engine: Engine, watch: Any, ask: Ask, tmp_path: Path
) -> None:
    layers = factors(engine.instance(MODEL).component(component).module, seed=1)
    prefix = {"transformer": "transformer.", "text": "text_encoder."}[component]
    path = str(write_adapter(tmp_path / "lora.safetensors", layers, prefix=prefix))
    engine.run(ask())
    watch.forwards.clear()
    for scale in (1.0, 1.0, 0.5):
        engine.run(ask(adapters=(Adapter(path=path, scale=scale),)))
    assert len(watch.sizes("text")) == 2 * encodes, "once for each scale"
    engine.run(ask())
    assert len(watch.sizes("text")) == 2 * encodes, "what was encoded without it is still there"


CHANGES: dict[str, Callable[[Engine, Ask, pytest.MonkeyPatch], Request]] = {
    "other weights": lambda engine, ask, patch: _changed_weights(engine, ask),
    "another prompt": lambda engine, ask, patch: ask(prompt="a blue square", negative_prompt="grey"),
    "other numerics": lambda engine, ask, patch: ask(numerics=Numerics.REFERENCE),
    "other threads": lambda engine, ask, patch: _other_threads(ask, patch),
    "forgotten": lambda engine, ask, patch: _forgotten(engine, ask),
}


def _changed_weights(engine: Engine, ask: Ask) -> Request:
    engine.instance(MODEL).weights_changed("text")
    return ask()


def _other_threads(ask: Ask, patch: pytest.MonkeyPatch) -> Request:
    patch.setattr(torch, "get_num_threads", lambda: 7)
    return ask()


def _forgotten(engine: Engine, ask: Ask) -> Request:
    engine._stores.forget(lambda key: key.component == "text")
    return ask()


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_can_change_the_encoding_encodes_again(
    change: str, engine: Engine, watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.run(ask())
    assert len(watch.sizes("text")) == 2
    engine.run(CHANGES[change](engine, ask, monkeypatch))
    assert len(watch.sizes("text")) == 4


def test_what_is_told_of_a_prompt_comes_back_with_its_encoding(engine: Engine, watch: Any, ask: Ask) -> None:
    long = ask(prompt="very " * 600 + "long")
    first, second = (engine.run(long).used.adjusted for _ in range(2))
    assert any("was cut" in note for note in first)
    assert second == first
    assert len(watch.sizes("text")) == 2


def test_equal_calls_of_a_round_do_not_depend_on_the_one_that_computes(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    """It may be cancelled before it does, and the others then encode themselves."""
    cancel = CancelScope()
    cancel.cancel()
    jobs = [engine.start(ask(), cancel=cancel), engine.start(ask(seed=2)), engine.start(ask(seed=3))]
    advance(jobs)
    assert [job.error is None for job in jobs] == [False, True, True]
    assert engine.counters().values == 1


def test_a_failed_encoding_is_not_kept(engine: Engine, watch: Any, ask: Ask) -> None:
    def refuse(forward: Any) -> None:
        raise ArithmeticError

    watch.before = refuse
    with pytest.raises(FvError):
        engine.run(ask())
    watch.before = lambda forward: None
    assert engine.run(ask()).frames.shape[0] == 5


def test_an_encoding_that_is_not_finite_is_not_kept(engine: Engine, watch: Any, ask: Ask) -> None:
    def spoil(forward: Any, outputs: list[Any]) -> list[Any]:
        tensors = {name: tensor * torch.nan for name, tensor in outputs[0].output.tensors.items()}
        return [replace(outputs[0], output=replace(outputs[0].output, tensors=tensors))]

    watch.after = spoil
    with pytest.raises(FvError) as caught:
        engine.run(ask())
    assert caught.value.code == "FV501"
    watch.after = lambda forward, outputs: outputs
    assert engine.run(ask()).frames.shape[0] == 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParams:
    """There are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How many calls it was told of."""

    calls: int = 0


class Zeros(Interceptor[NoParams, Seen]):
    """Answers the encoding of "grey" with zeros of the shape that it saw."""

    shape: tuple[int, ...] = ()

    def initial(self, params: NoParams) -> Seen:
        return Seen()

    def before(self, call: ComponentCall, at: At, state: Seen, params: NoParams) -> CallOutput | None:
        if call.rows.get("text") != "grey":
            return None
        return CallOutput(tensors={"embeds": torch.zeros(self.shape)})

    def after(self, call: ComponentCall, at: At, outputs: CallOutput, state: Seen, params: NoParams) -> Seen:
        type(self).shape = tuple(next(iter(outputs.tensors.values())).shape)
        return state


class Counts(Zeros):
    """Computes everything."""

    seen = 0

    def before(self, call: ComponentCall, at: At, state: Seen, params: NoParams) -> None:
        type(self).seen += 1


def spec(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> InterceptorSpec:
    monkeypatch.setitem(sys.modules, "reuse_interceptors", sys.modules[__name__])
    return InterceptorSpec(
        id="reuse/mine", loop_kinds=(kind,), distribution_altering=False, params="reuse_interceptors:NoParams",
        factory=f"reuse_interceptors:{name}",
    )  # fmt: skip


def test_an_interceptor_sees_every_call_that_it_attaches_to(
    watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    Counts.seen = 0
    with plain(monkeypatch, watch, extensions=[spec("Counts", "component", monkeypatch)]) as engine:
        clips(engine, [ask(), ask(seed=2)])
        assert (Counts.seen, len(watch.sizes("text"))) == (4, 4)
        assert engine.counters().pools["feature"].entries == 0
    with plain(monkeypatch, watch, extensions=[spec("Counts", "flow_denoise", monkeypatch)]) as engine:
        watch.forwards.clear()
        clips(engine, [ask(), ask(seed=2)])
        assert len(watch.sizes("text")) == 2


def test_what_an_interceptor_answers_is_not_kept(
    watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with plain(monkeypatch, watch, extensions=[spec("Zeros", "component", monkeypatch)]) as engine:
        engine.run(ask(negative_prompt="grey"))
        assert len(watch.sizes("text")) == 1, "grey was computed"
        assert engine.counters().pools["feature"].entries == 0


def test_calls_of_a_group_are_all_computed(engine: Engine, watch: Any, ask: Ask) -> None:
    """Its forward would be another without one of them."""
    engine.run(ask())
    job = engine.start(ask())
    work = job.work()
    assert work is not None
    (call,) = work.plan.calls
    grouped: Work = replace(work, plan=replace(work.plan, calls=(replace(call, group="g"),)))
    watch.forwards.clear()
    execute([grouped])
    assert watch.sizes("text") == [1]


def test_without_room_for_features_everything_is_computed_and_nothing_fails(
    watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    with plain(monkeypatch, watch, cache_bytes={"feature": 0}) as engine:
        clips(engine, [ask(), ask(seed=2)])
    assert sum(watch.sizes("text")) == 4


def test_where_a_card_does_not_state_its_caches_a_request_for_which_there_is_no_room_fails_and_the_others_go_on(
    ask: Ask,
) -> None:
    silent = derive(find_card(MODEL), caches="")
    with Engine([silent], device="cpu", cache_bytes={"stream": 60_000}) as engine:
        small, large = engine.run_many([ask(), ask(size=(32, 32))])
        assert small.ok
        assert large.error is not None
        assert large.error.code == "FV404"
        assert "stream caches" in str(large.error)
        assert "bytes of 60000 are not held" in str(large.error)
        assert engine.run(ask(seed=3)).frames.shape[0] == 5


@pytest.mark.parametrize("given", [{"heap": 1}, {"stream": -1}, {"stream": 1.5}, {"stream": True}])
def test_budgets_that_are_none_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        Engine([MODEL], device="cpu", cache_bytes=given)
    assert caught.value.code == "FV310"


def budgets(**options: Any) -> dict[str, int]:
    with Engine([MODEL], device="cpu", **options) as engine:
        return {name: pool.budget for name, pool in engine.counters().pools.items()}


def test_budgets_follow_the_memory_that_an_engine_may_use() -> None:
    machine, given = budgets(), budgets(memory="64MiB")
    assert machine["feature"] > 4 * 2**20
    assert given == dict.fromkeys(machine, 2**26) | {"feature": 2**22}
    assert budgets(memory=2**60) == machine


def test_budgets_are_given_in_bytes_or_as_sizes() -> None:
    assert budgets(cache_bytes={"stream": "1GiB", "text_kv": 5})["stream"] == 2**30
    assert Engine([MODEL], device="cpu", adapter_bytes="1GiB")._adapters.limit == 2**30


def test_a_request_that_is_open_when_weights_change_encodes_with_the_new_ones(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    jobs = [engine.start(ask(seed=seed)) for seed in (1, 2)]
    jobs[0].step()
    engine.instance(MODEL).weights_changed("text")
    jobs[1].step()
    assert watch.sizes("text") == [1, 1]


def kept(engine: Engine) -> int:
    return engine.counters().pools["feature"].entries


def test_what_goes_with_weights_that_are_gone_is_given_up(engine: Engine, watch: Any, ask: Ask) -> None:
    engine.run(ask())
    engine.unload(MODEL, "transformer")
    assert kept(engine) == 2
    engine.unload(MODEL, "text")
    assert kept(engine) == 0
    engine.run(ask())
    engine.instance(MODEL).weights_changed("text")
    engine.run(ask(guidance=1.0))
    assert kept(engine) == 1, "those of the weights before are gone"


def test_results_that_nobody_holds_make_room_for_a_request(
    engine: Engine, watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.run(ask())
    before = engine.counters().pools["feature"].idle_bytes
    monkeypatch.setattr("fv_core.runtime.residency.free_bytes", lambda device: 0)
    with pytest.raises(FvError):
        engine.start(ask())
    assert engine.counters().pools["feature"].idle_bytes < before


def test_whatever_a_call_is_made_with_is_in_its_key(engine: Engine, ask: Ask) -> None:
    job = engine.start(ask())
    work = job.work()
    assert work is not None
    (call,) = work.plan.calls
    others = [
        replace(call, static={"part": 1}), replace(call, static={"part": True}), replace(call, op="other"),
        replace(call, component="transformer"), replace(call, rows={"text": "other"}),
        replace(call, rows={**call.rows, "more": 0.0}), replace(call, rows={**call.rows, "more": torch.zeros(1)}),
    ]  # fmt: skip
    assert len({result_key(each, work) for each in (call, *others)}) == 1 + len(others)
    job.close()
