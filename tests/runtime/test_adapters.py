"""Adapters in an engine: keyed, told, stored and given back; never beside another stack in one forward."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fv_core import Adapter, Engine, FvError, Request
from fv_core.adapters.pool import AdapterPool
from fv_core.loop import ResolvedCall
from fv_core.request import BoundAdapter, Numerics
from fv_core.runtime.adapters import AdapterStack, bind_adapters
from fv_core.runtime.job import advance
from fv_core.runtime.requests.resolve import resolve
from fv_core.runtime.snapshots.snapshot import RequestSnapshot
from fv_core.testing.adapters import factors, write_adapter

MODEL = "wan21/micro"
Ask = Callable[..., Request]
Write = Callable[..., str]


@pytest.fixture
def write(engine: Engine, tmp_path: Path) -> Write:
    """Writes an adapter for components of the engine's model; the same seed gives the same bytes."""

    def written(name: str, seed: int, *, component: str = "transformer", rank: int = 4) -> str:
        prefix = {"transformer": "transformer.", "text": "text_encoder."}[component]
        layers = factors(engine.instance(MODEL).component(component).module, seed=seed, rank=rank)
        return str(write_adapter(tmp_path / f"{name}.safetensors", layers, prefix=prefix))

    return written


def latent(engine: Engine, request: Request) -> Tensor:
    return engine.run(request).tensors["latent"]


def test_a_reply_tells_its_adapters(engine: Engine, ask: Ask, write: Write) -> None:
    path = write("a", 1)
    used = engine.run(ask(adapters=(Adapter(path=path, scale=0.5),))).used
    (told,) = used.adapters
    assert isinstance(told, BoundAdapter) and len(told.sha256) == 64
    assert (told.path, told.scale, told.layers, told.alpha_stated) == (path, 0.5, {"transformer": 27}, False)
    assert engine.run(ask()).used.adapters == ()


def test_a_plan_tells_what_would_bind_and_loads_nothing(ask: Ask, write: Write) -> None:
    request = ask(adapters=(Adapter(path=write("a", 1)), Adapter(path=write("b", 2, component="text"))))
    with Engine([MODEL], device="cpu") as other:
        plan = other.plan(request)
        assert [one.layers for one in plan.adapters] == [{"transformer": 27}, {"text": 14}]
        assert other.instance(MODEL).loaded == ()


def test_a_scale_is_part_of_what_is_applied(engine: Engine, ask: Ask, write: Write) -> None:
    """0.5, 1.0, 0.5 on one engine equal three fresh ones."""
    path = write("a", 1)
    found = []
    for scale in (0.5, 1.0, 0.5):
        request = ask(adapters=(Adapter(path=path, scale=scale),))
        found.append(latent(engine, request))
        with Engine([MODEL], device="cpu") as fresh:
            assert torch.equal(found[-1], latent(fresh, request))
    assert torch.equal(found[0], found[2]) and not torch.equal(found[0], found[1])


def test_a_scale_of_zero_is_the_base_and_order_counts_in_bits_only(
    engine: Engine, ask: Ask, write: Write
) -> None:
    one, two = (Adapter(path=write(name, seed)) for name, seed in (("a", 1), ("b", 2)))
    base = latent(engine, ask())
    assert torch.equal(latent(engine, ask(adapters=(replace(one, scale=0.0),))), base)
    there, back = latent(engine, ask(adapters=(one, two))), latent(engine, ask(adapters=(two, one)))
    assert 0 <= float((there - back).abs().max()) < 1e-4 < float((there - base).abs().max())


def test_random_changes_leave_the_base_as_it_was(
    engine: Engine, ask: Ask, write: Write, tmp_path: Path
) -> None:
    """100 forwards with other adapters, scales and orders, in a pool too small for all of them."""
    instance, rng = engine.instance(MODEL), random.Random(5)
    paths = [write(str(number), number) for number in range(4)]
    generator = torch.Generator().manual_seed(1)
    rows: dict[str, Any] = {
        "latent": torch.randn(16, 2, 2, 2, generator=generator), "timestep": 500,
        "text": torch.randn(512, 32, generator=generator),
    }  # fmt: skip
    call = ResolvedCall(rows=rows, static={}, caches=(), numerics=Numerics.EXACT)
    component = instance.component("transformer")

    def velocity(stack: AdapterStack) -> Tensor:
        with torch.no_grad(), stack.applied("transformer", instance, Numerics.EXACT):
            return component.forward_batch("velocity", [call])[0].output.tensors["velocity"]

    held = sum(down.nbytes + up.nbytes for down, up in factors(component.module, seed=0).values())
    base, pool, fresh = velocity(AdapterStack()), AdapterPool(3 * held), AdapterPool(2**30)
    for change in range(100):
        chosen = rng.sample(paths, rng.randint(1, 3))
        stack = tuple(Adapter(path=path, scale=rng.choice([0.5, 1.0, -2.0])) for path in chosen)
        settled = resolve(ask(adapters=stack), instance.card, Numerics.EXACT)
        altered = velocity(bind_adapters(settled, instance, ["transformer"], pool))
        assert torch.equal(altered, velocity(bind_adapters(settled, instance, ["transformer"], fresh)))
        assert not torch.equal(altered, base) and pool.bytes <= pool.limit
        assert torch.equal(velocity(AdapterStack()), base), f"after {change + 1} changes"
    assert not any(part._forward_hooks for part in component.module.modules()), "nothing stays"


def mixed(engine: Engine, requests: list[Request]) -> list[Tensor]:
    """The latents of requests that take their steps together."""
    results = engine.run_many(requests)
    for result in results:
        assert result.clip is not None, result.error
    return [result.clip.tensors["latent"] for result in results if result.clip is not None]


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_two_adapters_in_flight_never_mix(
    numerics: str, engine: Engine, ask: Ask, write: Write, watch: Any
) -> None:
    a, b = Adapter(path=write("a", 1)), Adapter(path=write("b", 2))
    stacks: list[tuple[Adapter, ...]] = [(), (a,), (b,), (a, b), (b, a), (replace(a, scale=0.5),), (a,)]
    requests = [ask(adapters=stack, seed=seed, numerics=numerics) for seed, stack in enumerate(stacks)]
    alone = [latent(engine, request) for request in requests]
    watch.forwards.clear()
    for one, together in zip(alone, mixed(engine, requests), strict=True):
        if numerics == "exact":
            assert torch.equal(one, together)
        else:
            assert float((one - together).abs().max()) < 1e-4
    if (
        numerics == "fast"
    ):  # each request shares with itself (two branches), and the two of (a,) with each other
        assert sorted(watch.sizes("transformer")) == sorted([2, 2, 2, 2, 2, 4] * 2)


def test_a_key_without_adapters_mixes_them(
    engine: Engine, ask: Ask, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the test above: one forward for two stacks gives one of them the other's clip."""
    a, b = Adapter(path=write("a", 1)), Adapter(path=write("b", 2))
    requests = [ask(adapters=(one,), numerics="fast") for one in (a, b)]
    alone = [latent(engine, request) for request in requests]
    calls: dict[str, Any] = {"real": AdapterStack.key}
    monkeypatch.setattr(AdapterStack, "key", lambda stack, component: bool(calls["real"](stack, component)))
    together = mixed(engine, requests)
    assert float((together[0] - alone[0]).abs().max()) < 1e-4
    assert float((together[1] - alone[1]).abs().max()) > 1e-2


def test_equal_adapters_share_forwards_and_the_text_encoder_is_not_of_the_transformer(
    engine: Engine, ask: Ask, write: Write, watch: Any
) -> None:
    a, b = Adapter(path=write("a", 1)), Adapter(path=write("b", 2))
    requests = [ask(adapters=(one,), seed=seed, numerics="fast") for seed, one in enumerate((a, b, a))]
    mixed(engine, requests)
    assert watch.sizes("text") == [1, 1], "an adapter of the transformer parts no text encodes"
    assert watch.sizes("transformer") == [4, 2] * 2


def test_a_text_adapter_changes_the_text_alone(engine: Engine, ask: Ask, write: Write, watch: Any) -> None:
    text, transformer = Adapter(path=write("t", 1, component="text")), Adapter(path=write("a", 2))

    def rows(*adapters: Adapter) -> Tensor:
        watch.forwards.clear()
        engine.run(ask(adapters=adapters))
        return torch.cat([row["text"].clone() for one in watch.of("transformer")[:1] for row in one.rows])

    plain = rows()
    assert torch.equal(rows(transformer), plain) and not torch.equal(rows(text), plain)


def test_a_failing_forward_leaves_no_hook(engine: Engine, ask: Ask, write: Write, watch: Any) -> None:
    base = latent(engine, ask())

    def fail(forward: Any) -> None:
        raise RuntimeError("broken")

    adapters = (Adapter(path=write("a", 1)),)
    watch.before = fail
    with pytest.raises(FvError, match="broken"):
        engine.run(ask(adapters=adapters))
    watch.before = lambda forward: None
    assert torch.equal(latent(engine, ask()), base)


def halfway(engine: Engine, request: Request, file: Path) -> Tensor:
    """The whole run's latent; leaves a snapshot of its middle."""
    job = engine.start(request)
    for _ in range(3):
        job.step()
    engine.snapshot(job).save(file)
    while not job.done:
        job.step()
    clip = engine.clip(job)
    job.close()
    return clip.tensors["latent"]


def test_a_snapshot_goes_on_with_its_adapters(engine: Engine, ask: Ask, write: Write, tmp_path: Path) -> None:
    request = ask(adapters=(Adapter(path=write("a", 1), scale=0.5),))
    whole = halfway(engine, request, tmp_path / "snapshot")
    with Engine([MODEL], device="cpu") as other:
        job = other.resume(RequestSnapshot.load(tmp_path / "snapshot"))
        while not job.done:
            advance([job])
        assert torch.equal(other.clip(job).tensors["latent"], whole)
        job.close()


def test_a_snapshot_whose_file_is_gone_or_changed_is_refused(
    engine: Engine, ask: Ask, write: Write, tmp_path: Path
) -> None:
    path = write("a", 1)
    halfway(engine, ask(adapters=(Adapter(path=path),)), tmp_path / "snapshot")
    taken = RequestSnapshot.load(tmp_path / "snapshot")
    write("a", 2)
    with pytest.raises(FvError, match=r"FV322 .*has changed: its sha256 is"):
        engine.resume(taken)
    Path(path).unlink()
    with pytest.raises(FvError, match=r"FV322 .*is not a file"):
        engine.resume(taken)
    assert engine.counters().requests == 0


def test_a_file_that_changes_under_a_request_ends_it(engine: Engine, ask: Ask, write: Write) -> None:
    job = engine.start(ask(adapters=(Adapter(path=write("a", 1)),)))
    write("a", 2)
    while not job.done:
        job.step()
    assert job.error is not None and job.error.code == "FV322" and "has changed" in job.error.rule


def test_the_pool_holds_its_budget_and_gives_all_back(engine: Engine, ask: Ask, write: Write) -> None:
    paths = [write(str(number), number) for number in range(3)]
    with Engine([MODEL], device="cpu") as measured:
        latent(measured, ask(adapters=(Adapter(path=paths[0]),)))
        one = measured._adapters.bytes
    with Engine([MODEL], device="cpu", adapter_bytes=2 * one) as small:
        pool = small._adapters
        for number in (0, 1, 0, 2):
            latent(small, ask(adapters=(Adapter(path=paths[number]),)))
        assert pool.bytes == 2 * one and len(pool) == 2
        assert [key.sha256 for key in pool._held] == [
            small.plan(ask(adapters=(Adapter(path=paths[number]),))).adapters[0].sha256 for number in (0, 2)
        ], "the least recently used went"
        small.close()
        assert pool.bytes == 0
    with (
        Engine([MODEL], device="cpu", adapter_bytes=one - 1) as tiny,
        pytest.raises(FvError, match=rf"FV401 .*needs {one} bytes.*at most {one - 1} bytes"),
    ):
        tiny.run(ask(adapters=(Adapter(path=paths[0]),)))
    with pytest.raises(FvError, match="FV310 adapter_bytes"):
        Engine([MODEL], device="cpu", adapter_bytes=-1)


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), True, "1"])
def test_a_scale_is_a_finite_number(scale: Any, engine: Engine, ask: Ask, write: Write) -> None:
    with pytest.raises(FvError, match="FV324 scale of adapter"):
        engine.plan(ask(adapters=(Adapter(path=write("a", 1), scale=scale),)))


def test_one_adapter_twice_is_refused_whatever_its_name(engine: Engine, ask: Ask, write: Write) -> None:
    twin = (Adapter(path=write("a", 1)), Adapter(path=write("b", 1), scale=0.5))
    with pytest.raises(FvError, match=r"FV324 .*is given twice"):
        engine.plan(ask(adapters=twin))


def test_what_is_no_adapter_is_refused(engine: Engine, ask: Ask) -> None:
    for given in ("a.safetensors", ("a.safetensors",), None):
        with pytest.raises(FvError, match="FV324 adapters"):
            engine.plan(ask(adapters=given))


def test_an_adapter_of_another_model_is_refused_before_the_first_step(
    engine: Engine, ask: Ask, write: Write, tmp_path: Path
) -> None:
    layers = {f"layers.{number}.q": (torch.ones(2, 8), torch.ones(8, 2)) for number in range(7)}
    path = write_adapter(tmp_path / "other.safetensors", layers)
    with pytest.raises(FvError, match=r"FV323 .*7 of its 7 layers .* and 2 more"):
        engine.start(ask(adapters=(Adapter(path=str(path)),)))
    assert engine.counters().requests == 0


def test_certificates_cover_no_adapter(ask: Ask, write: Write) -> None:
    """As an interceptor that alters: an engine that requires certificates refuses the request by name."""
    with Engine([MODEL], device="cpu", require_certified=True) as strict:
        with pytest.raises(FvError, match=r"FV606 adapters .*alter what was certified"):
            strict.plan(ask(adapters=(Adapter(path=write("a", 1)),)))
        strict.plan(ask())


def test_unloading_a_model_gives_its_adapters_back(engine: Engine, ask: Ask, write: Write) -> None:
    request = ask(adapters=(Adapter(path=write("a", 1)), Adapter(path=write("b", 2, component="text"))))
    first = latent(engine, request)
    pool = engine._adapters
    assert len(pool) == 2
    engine.unload(MODEL, "text")
    assert len(pool) == 1
    engine.unload(MODEL)
    assert pool.bytes == 0
    assert torch.equal(latent(engine, request), first)


def test_adapters_count_as_memory_and_make_room(engine: Engine, ask: Ask, write: Write) -> None:
    """What a request with an adapter leaves behind is given up where a next one needs its bytes."""
    one, other = (
        ask(adapters=(Adapter(path=write(name, seed, rank=64)),)) for name, seed in (("a", 1), ("b", 2))
    )
    alone = [latent(engine, request) for request in (one, other)]
    plan = engine.plan(one)
    assert plan.adapter_bytes == engine.plan(other).adapter_bytes == engine._adapters.bytes // 2
    assert plan.peak_bytes == engine.plan(ask()).peak_bytes + plan.adapter_bytes
    with Engine([MODEL], device="cpu", memory=plan.peak_bytes, reuse=False) as small:
        for request, found in (*zip((one, other), alone, strict=True),) * 2:
            assert torch.equal(latent(small, request), found)
            assert small._adapters.bytes == plan.adapter_bytes, "one of them has left for the other"
    with Engine([MODEL], device="cpu", memory=plan.peak_bytes - 1, reuse=False) as small:
        with pytest.raises(FvError, match=rf"FV401 .*needs {plan.peak_bytes} bytes"):
            small.start(one)
        with pytest.raises(FvError, match="FV401"):
            small.accept(one)
        assert small.instance(MODEL).loaded == () and small._adapters.bytes == 0


def test_adapters_of_open_requests_do_not_make_room(engine: Engine, ask: Ask, write: Write) -> None:
    """They would be read again at the next step, and their bytes are reserved all along."""
    one, other = (
        ask(adapters=(Adapter(path=write(name, seed, rank=64)),)) for name, seed in (("a", 1), ("b", 2))
    )
    alone, plan = [latent(engine, request) for request in (one, other)], engine.plan(one)
    beside = plan.working_bytes + plan.adapter_bytes
    for lacking in (1, 0):
        with Engine([MODEL], device="cpu", memory=plan.peak_bytes + beside - lacking, reuse=False) as small:
            first = small.start(one)
            while not small._adapters.bytes:
                first.step()
            if lacking:
                with pytest.raises(FvError, match=rf"FV405 .*reserved for {first.run.id} now"):
                    small.start(other)
                assert small._adapters.bytes == plan.adapter_bytes
            else:
                small.start(other).close()
            first.close()
            for result, found in zip(small.run_many([one, other, one]), (*alone, alone[0]), strict=True):
                assert result.clip is not None and torch.equal(result.clip.tensors["latent"], found)


def test_an_adapter_counts_in_the_type_that_it_is_applied_in(ask: Ask, write: Write) -> None:
    request = ask(adapters=(Adapter(path=write("a", 1)),))
    with Engine([MODEL], device="cpu", dtype="bfloat16") as half:
        plan = half.plan(request)
        half.run(request)
        assert half._adapters.bytes == plan.adapter_bytes
    with Engine([MODEL], device="cpu") as full:
        assert plan.adapter_bytes < full.plan(request).adapter_bytes  # some layers stay in fp32


def test_a_stack_has_to_fit_as_a_whole(engine: Engine, ask: Ask, write: Write) -> None:
    paths = [write(name, seed) for name, seed in (("a", 1), ("b", 2))]
    latent(engine, ask(adapters=(Adapter(path=paths[0]),)))
    one = engine._adapters.bytes
    with Engine([MODEL], device="cpu", adapter_bytes=2 * one - 1) as small:
        latent(small, ask(adapters=(Adapter(path=paths[1]),)))
        with pytest.raises(FvError, match=rf"FV401 .*needs {2 * one} bytes"):
            small.run(ask(adapters=tuple(Adapter(path=path) for path in paths)))


def test_factors_that_are_not_finite_are_refused(engine: Engine, ask: Ask, tmp_path: Path) -> None:
    layers = factors(engine.instance(MODEL).component("transformer").module, seed=1, rank=2)
    name = next(one for one in layers if one.endswith("attn1.to_k"))
    layers[name][0].view(-1)[0] = torch.nan
    path = str(write_adapter(tmp_path / "nan.safetensors", layers, prefix="transformer."))
    with pytest.raises(FvError, match=r"FV322 .*NaN or infinite values in .*attn1\.to_k"):
        engine.run(ask(adapters=(Adapter(path=path),)))
