"""Memory of an engine: who is let in, who waits, who leaves, who sleeps; and that none of it changes a bit."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fv_core import CancelScope, Clip, Engine, FvError, ModelCard, OutputSpec, Request, derive
from fv_core.errors import ResourceError, RunError
from fv_core.memory import Tag, Ticket
from fv_core.request import EVERYTHING
from fv_core.runtime import residency
from fv_core.runtime.job import Job, advance
from fv_core.runtime.together import Together
from fv_core.testing.tiny import CARD as PLAIN

WORKING = 1000
STEPS = 8  # of a request


def working(geometry: object, config: object, dtype_bytes: int) -> int:
    return WORKING


def stated(model_id: str) -> ModelCard:
    """The kit's card with its memory stated."""
    sizes = {"text": 256 * 8, "denoiser": 4 * 4 * 27 + 4 + 8 * 4 + 4, "vae": 4 * 768 + 768}
    components = {
        name: replace(spec, parameters=sizes[name], activation=f"{__name__}:working")
        for name, spec in PLAIN.components.items()
    }
    return derive(PLAIN, model_id=model_id, components=components)


ONE, OTHER = stated("testing/one"), stated("testing/other")
WEIGHTS = 4 * sum(spec.parameters for spec in ONE.components.values())


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What sleeps, sleeps under `tmp_path`; activations are of this module, which no import finds."""
    resolve = __import__("fv_core.runtime.estimate", fromlist=["x"]).resolve_reference
    monkeypatch.setattr(
        "fv_core.runtime.estimate.resolve_reference",
        lambda reference, owner: (
            working if reference.endswith(":working") else resolve(reference, owner=owner)
        ),
    )
    monkeypatch.setenv("FV_HOME", str(tmp_path / "home"))
    torch.set_num_threads(1)
    return tmp_path / "home" / "asleep"


def ask(seed: int = 1, model: str = "testing/one", **fields: Any) -> Request:
    small: dict[str, Any] = {
        "prompt": "a red circle", "size": (16, 16), "frames": 5, "steps": 3, "output": OutputSpec(keep=(EVERYTHING,)),
    }  # fmt: skip
    return Request(**{**small, "seed": seed, "model": model, **fields})


def engine_of(memory: int | None, *cards: ModelCard) -> Engine:
    """One that computes everything anew: what is remembered needs no weights."""
    return Engine(cards or [ONE, OTHER], device="cpu", memory=memory, reuse=False)


def same(one: Clip | None, other: Clip | None) -> bool:
    assert one is not None and other is not None
    return one.tensors.keys() == other.tensors.keys() and all(
        torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors
    )


@pytest.fixture(scope="module")
def alone() -> dict[int, Clip]:
    """Seed to clip, of an engine with all the memory there is."""
    with Engine([PLAIN], device="cpu") as engine:
        assert engine.plan(ask(1, PLAIN.model_id)).steps == STEPS
        return {seed: engine.run(ask(seed, PLAIN.model_id)) for seed in range(1, 5)}


def open_at_once(patch: pytest.MonkeyPatch) -> list[int]:
    """Fills with how many jobs each round steps."""
    seen: list[int] = []

    def count(jobs: tuple[Job, ...]) -> None:
        seen.append(len(jobs))
        advance(jobs)

    patch.setattr("fv_core.runtime.together.advance", count)
    return seen


@pytest.mark.parametrize(("room", "together"), [(1, 1), (2, 2), (3, 3)])
def test_what_does_not_fit_beside_the_others_waits_and_equals_its_solo_run(
    room: int, together: int, alone: dict[int, Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = open_at_once(monkeypatch)
    with engine_of(WEIGHTS + room * WORKING + WORKING // 2, ONE) as engine:
        results = engine.run_many([ask(seed) for seed in alone], numerics="exact")
        assert all(same(one.clip, clip) for one, clip in zip(results, alone.values(), strict=True))
        assert engine.counters().reserved_bytes == 0
    assert max(seen) == together


def test_start_says_that_it_does_not_fit_now_and_fits_once_there_is_room() -> None:
    with engine_of(WEIGHTS + WORKING, ONE) as engine:
        first = engine.start(ask(1))
        with pytest.raises(ResourceError) as caught:
            engine.start(ask(2))
        assert caught.value.code == "FV405" and first.run.id in caught.value.message
        assert engine.counters().requests == 1
        (result,) = engine.run_many([ask(2)])  # whom it would wait for, nobody steps here
        assert result.error is not None and result.error.code == "FV405"
        first.close()
        engine.start(ask(2)).close()


def test_what_can_never_fit_is_refused_at_once_with_the_bytes() -> None:
    with engine_of(WEIGHTS + WORKING - 1, ONE) as engine:
        first, second = engine.run_many([ask(1), ask(2)])
        for result in (first, second):
            assert result.error is not None and result.error.code == "FV401"
            assert f"needs {WEIGHTS + WORKING} bytes" in result.error.message
            assert f"{WEIGHTS + WORKING - 1} bytes" in result.error.message
        assert engine.instance("testing/one").loaded == ()


def test_weights_are_reserved_once_for_all_requests_of_a_model_and_loaded_ones_not_again() -> None:
    with engine_of(WEIGHTS + 3 * WORKING, ONE) as engine:
        budget = engine._residency.budget
        jobs = [engine.start(ask(seed)) for seed in (1, 2, 3)]
        assert (budget.reserved(Tag.WEIGHTS), budget.reserved(Tag.ACTIVATIONS)) == (WEIGHTS, 3 * WORKING)
        while not jobs[0].done:
            advance(jobs)
            assert budget.reserved(Tag.WEIGHTS) == WEIGHTS
        for job in jobs:
            job.close()
            job.close()
        assert budget.reserved() == budget.reserved(Tag.WEIGHTS) == WEIGHTS
        assert engine.instance("testing/one").resident_bytes() == WEIGHTS


def test_control_without_admission_they_all_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "claims_of", lambda plan, instance, stack: [])
    seen = open_at_once(monkeypatch)
    with engine_of(WEIGHTS + WORKING, ONE) as engine:
        engine.run_many([ask(seed) for seed in (1, 2, 3, 4)])
    assert max(seen) == 4


@pytest.mark.parametrize("memory", [0, "8GB", -1, "", True])
def test_what_is_no_size_of_memory_is_refused(memory: object) -> None:
    with pytest.raises(FvError) as caught:
        Engine([ONE], device="cpu", memory=memory)  # type: ignore[arg-type]
    assert caught.value.code == "FV312"


def test_memory_bounds_what_the_device_has_and_never_extends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "free_bytes", lambda device: 5000)
    for memory, capacity in ((None, 5000), (4000, 4000), ("4KiB", 4096), ("1GiB", 5000)):
        with Engine([ONE], device="cpu", memory=memory) as engine:
            assert engine.capacity() == capacity
    with Engine([ONE], device="cpu") as engine:
        engine.instance("testing/one").component("vae")
        assert engine.capacity() == 5000 + 4 * ONE.components["vae"].parameters


def test_a_waiting_request_is_not_started_once_all_are_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    cancel, started = CancelScope(), list[int]()
    with engine_of(WEIGHTS + WORKING, ONE) as engine:

        def start(request: Request) -> Job:
            job = engine.start(request, cancel=cancel)
            started.append(request.seed or 0)
            return job

        def step(jobs: tuple[Job, ...]) -> None:
            advance(jobs)
            cancel.cancel()

        monkeypatch.setattr("fv_core.runtime.together.advance", step)
        results = Together(start, engine.clip, cancel).run([ask(seed) for seed in (1, 2, 3)])
        assert [result.error.code for result in results if result.error] == ["FV510"] * 3
        assert started == [1]
        assert engine.counters().reserved_bytes == engine.counters().requests == 0


@pytest.mark.parametrize("step", range(STEPS))
def test_a_job_that_fails_gives_its_ticket_back_wherever_it_fails(
    step: int, alone: dict[int, Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    with engine_of(WEIGHTS + WORKING, ONE) as engine:
        done = 0

        def fail(jobs: tuple[Job, ...]) -> None:
            nonlocal done
            if done == step:
                jobs[0].fail(RunError("FV502", name="a step", rule="failed", remedy="None."))
            else:
                advance(jobs)
            done += 1

        monkeypatch.setattr("fv_core.runtime.together.advance", fail)
        first, second = engine.run_many([ask(1), ask(2)])
        assert first.error is not None and first.error.code == "FV502"
        assert same(second.clip, alone[2])
        assert engine.counters().reserved_bytes == 0


@pytest.mark.parametrize(
    "where", ["run.RequestRun.__init__", "instance.ModelInstance.check", "job.Job.announce"]
)
def test_a_job_that_cannot_start_gives_its_ticket_back(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    with engine_of(WEIGHTS + WORKING, ONE) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(f"fv_core.runtime.{where}", fail)
            with pytest.raises(KeyboardInterrupt):
                engine.start(ask())
        assert engine.counters().reserved_bytes == engine.counters().requests == 0
        assert engine._residency.budget.reserved() == 0
        engine.run(ask())


def test_control_a_ticket_that_is_not_given_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine_of(WEIGHTS + WORKING, ONE) as engine:
        monkeypatch.setattr(Ticket, "close", lambda ticket: None)
        engine.run(ask(1))
        assert engine.counters().reserved_bytes == WORKING
        with pytest.raises(ResourceError, match="FV405"):
            engine.run(ask(2))


# Who leaves when another model needs the room.


def test_an_idle_model_makes_room_and_comes_back_with_the_same_bytes(alone: dict[int, Clip]) -> None:
    with engine_of(WEIGHTS + WORKING) as engine:
        for model in ("testing/one", "testing/other", "testing/one"):
            assert same(engine.run(ask(1, model)), alone[1])
            assert engine._residency.budget.reserved() <= WEIGHTS + WORKING
            assert engine.instance(model).resident_bytes() == WEIGHTS
        assert engine.instance("testing/other").loaded == ()


def test_the_least_recently_used_model_leaves_and_no_more_than_is_needed() -> None:
    third = stated("testing/third")
    with engine_of(2 * WEIGHTS + WORKING, ONE, OTHER, third) as engine:
        for model in ("testing/one", "testing/other", "testing/one", "testing/third"):
            engine.run(ask(1, model))
        loaded = {model: len(engine.instance(model).loaded) for model in ("testing/one", "testing/other")}
        assert loaded == {"testing/one": 3, "testing/other": 0}
    slack = 4 * ONE.components["denoiser"].parameters
    with engine_of(2 * WEIGHTS + WORKING + WEIGHTS - slack, ONE, OTHER, third) as engine:
        for model in ("testing/one", "testing/other", "testing/third"):
            engine.run(ask(1, model))
        assert engine.instance("testing/one").loaded == ("denoiser", "vae")


def test_models_of_open_requests_stay_and_nobody_leaves_for_nothing() -> None:
    third = stated("testing/third")
    with engine_of(2 * WEIGHTS + WORKING, ONE, OTHER, third) as engine:
        engine.run(ask(1, "testing/third"))
        job = engine.start(ask(1))
        for _ in range(3):
            job.step()
        with pytest.raises(ResourceError, match="FV405"):
            engine.start(ask(2, "testing/other"))
        assert len(engine.instance("testing/third").loaded) == 3
        job.close()
        engine.run(ask(2, "testing/other"))


def test_results_that_are_kept_count_and_are_the_first_to_leave(alone: dict[int, Clip]) -> None:
    with Engine([ONE], device="cpu", memory=WEIGHTS + 3 * WORKING) as engine:
        engine.run(ask(1))
        kept = engine._stores.kept_bytes()
        assert WORKING < kept < 2 * WORKING
        job, budget = engine.start(ask(2)), engine._residency.budget
        assert (budget.reserved(Tag.CACHES), budget.reserved(Tag.WEIGHTS)) == (kept, WEIGHTS)
        with closing(engine.start(ask(3))):
            assert engine._stores.kept_bytes() == budget.reserved(Tag.CACHES) < kept
            assert budget.reserved() <= WEIGHTS + 3 * WORKING
        job.close()
        assert same(engine.run(ask(2)), alone[2])


def changed(engine: Engine, model: str = "testing/one") -> None:
    """Changes the weights of the denoiser as training would."""
    instance = engine.instance(model)
    for parameter in instance.component("denoiser").module.parameters():
        parameter.data.mul_(1.5)
    instance.weights_changed("denoiser")


def test_a_changed_model_that_makes_room_sleeps_and_wakes_as_it_was(
    alone: dict[int, Clip], at_home: Path
) -> None:
    with engine_of(WEIGHTS + WORKING) as engine:
        engine.run(ask(1))
        changed(engine)
        trained = engine.run(ask(1))
        assert not same(trained, alone[1])
        assert same(engine.run(ask(1, "testing/other")), alone[1])
        instance = engine.instance("testing/one")
        assert instance.asleep == ("denoiser",) and instance.resident_bytes() == 0
        assert [path.stat().st_size > 4 * 472 for path in at_home.iterdir()] == [True]
        assert same(engine.run(ask(1)), trained)
        assert instance.version == 1 and list(at_home.iterdir()) == []


# Sleeping, waking, unloading.


def test_weights_that_are_told_to_have_changed_while_they_sleep_are_not_dropped(at_home: Path) -> None:
    with engine_of(None) as engine:
        engine.run(ask(1))
        for parameter in engine.instance("testing/one").component("denoiser").module.parameters():
            parameter.data.mul_(1.5)
        trained = engine.run(ask(1))
        engine.sleep("testing/one")
        engine.instance("testing/one").weights_changed()
        engine.wake("testing/one")
        with pytest.raises(FvError, match="FV408"):
            engine.unload("testing/one")
        assert same(engine.run(ask(1)), trained)


def slept(engine: Engine) -> None:
    engine.sleep("testing/one")


def slept_and_woken(engine: Engine) -> None:
    engine.sleep("testing/one", "vae", to="disk")
    engine.sleep("testing/one")
    engine.wake("testing/one", "text")
    assert engine.instance("testing/one").loaded == ("text",)
    engine.wake("testing/one")


def unloaded(engine: Engine) -> None:
    engine.unload("testing/one", "vae")
    engine.unload("testing/one")


@pytest.mark.parametrize("gone", [slept, slept_and_woken, unloaded])
def test_what_slept_or_was_unloaded_computes_the_same_bytes(
    gone: Callable[[Engine], None], alone: dict[int, Clip]
) -> None:
    with engine_of(None) as engine:
        engine.run(ask(1))
        gone(engine)
        if gone is not slept_and_woken:
            assert engine.instance("testing/one").resident_bytes() == 0
            assert engine._residency.budget.reserved() == 0
        assert [same(engine.run(ask(seed)), alone[seed]) for seed in (1, 2)] == [True, True]
        assert engine.instance("testing/one").resident_bytes() == WEIGHTS


def test_control_one_flipped_bit_is_seen_in_the_bytes_if_nobody_compares_checksums(
    alone: dict[int, Clip], at_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Blind:
        def update(self, data: object) -> None:
            pass

        def hexdigest(self) -> str:
            return ""

    monkeypatch.setattr("fv_core.weights.asleep._begun", lambda places: Blind())
    with engine_of(None) as engine:
        engine.run(ask(1))
        engine.sleep("testing/one", "denoiser")
        flip(at_home)
        assert not same(engine.run(ask(1)), alone[1])


def flip(folder: Path) -> None:
    """The highest bit of the last number of the only file."""
    (file,) = folder.iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 128
    file.write_bytes(content)


def test_corrupted_weights_are_refused_by_name_until_they_are_given_up(
    alone: dict[int, Clip], at_home: Path
) -> None:
    with engine_of(None) as engine:
        engine.run(ask(1))
        engine.sleep("testing/one", "denoiser")
        flip(at_home)
        for _ in range(2):
            with pytest.raises(FvError) as caught:
                engine.run(ask(1))
            assert caught.value.code == "FV259" and "denoiser of testing/one" in caught.value.message
        with pytest.raises(FvError, match="FV259"):
            engine.wake("testing/one")
        assert engine.counters().reserved_bytes == engine.counters().requests == 0
        engine.unload("testing/one")
        assert same(engine.run(ask(1)), alone[1])


def test_trained_weights_are_never_lost_unless_that_is_said(alone: dict[int, Clip]) -> None:
    with engine_of(None) as engine:
        engine.run(ask(1))
        changed(engine)
        trained = engine.run(ask(1))
        for sleeping in (False, True):
            with pytest.raises(ResourceError) as caught:
                engine.unload("testing/one")
            assert caught.value.code == "FV408" and "denoiser" in caught.value.message
            assert same(engine.run(ask(1)), trained)
            if not sleeping:
                engine.sleep("testing/one")
        engine.unload("testing/one", "text", "vae")
        assert same(engine.run(ask(1)), trained)
        engine.unload("testing/one", discard=True)
        assert same(engine.run(ask(1)), alone[1])
        assert engine.instance("testing/one").version == 2 and not engine.instance("testing/one").changed


def test_models_in_use_do_not_sleep() -> None:
    with engine_of(None) as engine:
        job = engine.start(ask(1))
        job.step()
        for act in (engine.sleep, engine.unload):
            for components in ((), ("vae",)):
                with pytest.raises(ResourceError) as caught:
                    act("testing/one", *components)
                assert caught.value.code == "FV407" and job.run.id in caught.value.message
        engine.sleep("testing/other")
        job.close()
        engine.sleep("testing/one")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_model_that_cannot_be_stored_stays_usable(
    number: int, alone: dict[int, Clip], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with engine_of(WEIGHTS + WORKING) as engine:
        engine.run(ask(1))
        changed(engine)
        trained = engine.run(ask(1))
        code = "FV403" if number == errno.ENOSPC else "FV406"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            for act in (lambda: engine.sleep("testing/one"), lambda: engine.run(ask(1, "testing/other"))):
                with pytest.raises(ResourceError) as caught:
                    act()
                assert caught.value.code == code
        assert same(engine.run(ask(1)), trained)
        assert same(engine.run(ask(1, "testing/other")), alone[1])


def test_what_is_no_component_or_no_place_is_refused() -> None:
    with engine_of(None) as engine:
        for act in (engine.sleep, engine.wake, engine.unload):
            with pytest.raises(FvError, match=r"FV310.*text, denoiser, vae"):
                act("testing/one", "audio")
        for to in ("host", "attic"):
            with pytest.raises(FvError, match=r"FV312.*auto, disk"):
                engine.sleep("testing/one", to=to)  # type: ignore[arg-type]


def test_what_sleeps_wakes_only_where_it_fits() -> None:
    with engine_of(WEIGHTS + 2 * WORKING) as engine:
        engine.run(ask(1))
        engine.sleep("testing/one")
        job = engine.start(ask(1, "testing/other"))
        with pytest.raises(ResourceError, match="FV405"):
            engine.wake("testing/one")
        assert len(engine.instance("testing/one").asleep) == 3
        job.close()
        engine.wake("testing/one")
        assert engine._residency.budget.reserved() == WEIGHTS


def test_closing_leaves_no_file(at_home: Path) -> None:
    with engine_of(None) as engine:
        engine.run(ask(1))
        engine.sleep("testing/one")
        assert len(list(at_home.iterdir())) == 3
    assert list(at_home.iterdir()) == []


# Offload.


def test_offloaded_requests_reserve_one_component_and_all_working_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fv_core.runtime.intake.checked_offload", lambda offload, device: offload)
    largest = max(4 * spec.parameters for spec in ONE.components.values())
    with Engine([ONE], device="cpu", offload="component", memory=largest + 2 * WORKING) as engine:
        jobs = [engine.start(ask(1)), engine.start(ask(2))]
        assert engine._residency.budget.reserved() == largest + 2 * WORKING
        with pytest.raises(ResourceError, match="FV405"):
            engine.start(ask(3))
        for job in jobs:
            job.close()
        engine.run(ask(3))
        assert engine._residency.budget.reserved() == 0
