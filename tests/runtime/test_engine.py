"""The engine: requests in, clips out; what it refuses, keeps, tells and gives back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fv_core import (
    CancelScope,
    Clip,
    Engine,
    Failed,
    Finished,
    Loading,
    MediaChunk,
    OutputSpec,
    Request,
    Started,
    StepDone,
    derive,
)
from fv_core.errors import (
    CardError,
    FvError,
    PluginError,
    RequestError,
    ResourceError,
    RunError,
    WeightsError,
)
from fv_core.plugins import find_card
from fv_core.request import Numerics, RequestEvent, Size
from fv_core.runtime.job import advance
from fv_core.runtime.stores import Counters

Ask = Callable[..., Request]
NOTHING = Counters(requests=0, values=0, value_bytes=0, caches=0, cache_bytes=0)
TINY = find_card("wan21/micro")


def code(caught: pytest.ExceptionInfo[FvError]) -> str:
    return caught.value.code


def test_clip_has_frames_rate_request_and_facts(engine: Engine, ask: Ask) -> None:
    clip = engine.run(ask(fps=12, size=(32, 16), frames=5, seed=9))
    assert clip.frames.dtype == np.uint8
    assert (clip.frames.shape, clip.fps) == ((5, 16, 32, 3), 12.0)
    used, request = clip.used, clip.request
    for name in (
        "model",
        "seed",
        "size",
        "frames",
        "fps",
        "steps",
        "guidance",
        "numerics",
        "params",
        "adjusted",
    ):
        assert getattr(used, name) == getattr(request, name), name
    assert (used.model, used.seed, used.size) == ("wan21/micro", 9, Size(32, 16))
    assert (used.card_digest, used.weights, used.dtype) == (TINY.digest(), "seed 0", "float32")
    assert used.plugin.startswith("fv-wan21 ")
    assert (used.sampler, used.extensions) == ("flow.unipc2.cfg/v1", ())
    assert used.environment.threads == 1
    assert used.environment.versions["torch"] == torch.__version__
    assert "diffusers" in used.environment.versions
    assert len(used.environment_hash) == 16
    assert used.seconds > 0


def test_frames_are_the_video_in_bytes(engine: Engine, ask: Ask) -> None:
    clip = engine.run(ask())
    assert np.array_equal(clip.frames, clip.tensors["video"].mul(255).round().numpy().astype(np.uint8))


def test_kept_slots_come_back_as_tensors_and_others_do_not(engine: Engine, ask: Ask) -> None:
    clip = engine.run(ask(output=OutputSpec(keep=("cond", "uncond", "latent", "video"))))
    shapes = {name: tuple(tensor.shape) for name, tensor in clip.tensors.items()}
    assert shapes == {
        "cond": (512, 32),
        "uncond": (512, 32),
        "latent": (16, 2, 2, 2),
        "video": (5, 16, 16, 3),
    }
    assert engine.run(ask(output=OutputSpec())).tensors == {}
    with pytest.raises(RequestError) as caught:
        engine.run(ask(guidance=1.0, output=OutputSpec(keep=("uncond",))))
    assert code(caught) == "FV310"
    assert engine.counters() == NOTHING


def test_same_request_gives_the_same_frames_and_another_seed_does_not(engine: Engine, ask: Ask) -> None:
    first, again, other = engine.run(ask()), engine.run(ask()), engine.run(ask(seed=2))
    assert np.array_equal(first.frames, again.frames)
    assert not torch.equal(first.tensors["latent"], other.tensors["latent"])


def test_drawn_seed_is_told_and_repeats_the_run(engine: Engine, ask: Ask) -> None:
    drawn = engine.run(ask(seed=None))
    assert np.array_equal(engine.run(ask(seed=drawn.used.seed)).frames, drawn.frames)


def test_global_random_state_is_neither_read_nor_moved(engine: Engine, ask: Ask) -> None:
    torch.manual_seed(1)
    first = engine.run(ask())
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    assert np.array_equal(engine.run(ask()).frames, first.frames)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_events_tell_every_step_in_order_and_every_frame_once(engine: Engine, ask: Ask) -> None:
    events: list[RequestEvent] = []
    clip = engine.run(ask(frames=9, steps=3), observer=events.append)
    assert [type(event) for event in events] == [
        Started, Loading, StepDone, StepDone, Loading, *[StepDone] * 3, Loading, StepDone,
        *[StepDone, MediaChunk] * 3, Finished,
    ]  # fmt: skip
    loaded = [event.component for event in events if isinstance(event, Loading)]
    assert loaded == ["text", "transformer", "vae"]
    started, finished = events[0], events[-1]
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert (started.model, started.seed, started.adjusted) == ("wan21/micro", 1, ())
    steps = [event for event in events if isinstance(event, StepDone)]
    assert started.total_steps == len(steps) == 9
    assert [(each.node, each.step, each.total) for each in steps] == [
        ("encode", 1, 1), ("encode_negative", 1, 1), *[("denoise", n, 3) for n in (1, 2, 3)],
        *[("decode", n, 4) for n in (1, 2, 3, 4)],
    ]  # fmt: skip
    assert all(each.seconds > 0 and each.eta_s >= 0 and each.label for each in steps)
    assert [each.eta_s == 0 for each in steps] == [each.step == each.total for each in steps]
    assert finished.seconds == pytest.approx(sum(each.seconds for each in steps))
    chunks = [event for event in events if isinstance(event, MediaChunk)]
    assert [chunk.index for chunk in chunks] == [0, 1, 2]
    assert np.array_equal(np.concatenate([chunk.frames for chunk in chunks]), clip.frames)
    assert len({event.request_id for event in events}) == 1


def test_ids_of_requests_are_those_of_one_engine_and_go_with_a_snapshot(engine: Engine, ask: Ask) -> None:
    with Engine(["wan21/micro"], device="cpu") as other, closing(other.start(ask())) as theirs:
        theirs.step()
        taken = other.snapshot(theirs)
        with closing(engine.start(ask())) as ours, closing(engine.resume(taken)) as resumed:
            assert resumed.run.id == theirs.run.id != ours.run.id


def test_failure_is_the_last_event(engine: Engine, watch: Any, ask: Ask) -> None:
    def fail(forward: Any) -> None:
        raise ArithmeticError("no")

    watch.before = fail
    events: list[RequestEvent] = []
    with pytest.raises(RunError):
        engine.run(ask(), observer=events.append)
    assert [type(event) for event in events] == [Started, Failed]
    assert isinstance(events[-1], Failed)
    assert events[-1].code == "FV502"
    assert "ArithmeticError: no" in events[-1].message


def test_notes_of_components_are_told_with_the_result(engine: Engine, ask: Ask) -> None:
    clip = engine.run(ask(prompt="circle " * 600, negative_prompt="square " * 600))
    assert len(clip.used.adjusted) == 2
    assert all("was cut to the 512" in note for note in clip.used.adjusted)


@pytest.mark.parametrize("order", ["serial", "interleaved"])
def test_results_come_in_the_order_of_the_requests_and_one_that_fails_is_told(
    order: Any, engine: Engine, ask: Ask
) -> None:
    requests = [ask(seed=1, steps=3), ask(size=(17, 16)), ask(prompt=" "), ask(seed=2, model="wan21/micro")]
    results = engine.run_many(requests, order=order)
    assert [result.request for result in results] == requests
    assert [result.ok for result in results] == [True, False, False, True]
    assert [result.error.code for result in results if result.error is not None] == ["FV302", "FV301"]
    assert [result.clip.used.seed for result in results if result.clip is not None] == [1, 2]
    assert engine.counters() == NOTHING
    assert engine.run_many([], order=order) == []


def test_numerics_are_the_requests_then_the_calls_then_the_engines(ask: Ask) -> None:
    with Engine(["wan21/micro"], device="cpu", numerics="reference") as engine:
        assert engine.run(ask()).used.numerics is Numerics.REFERENCE
        results = engine.run_many([ask(), ask(numerics=Numerics.EXACT)], numerics="fast")
        assert [result.clip.used.numerics for result in results if result.clip] == [
            Numerics.FAST,
            Numerics.EXACT,
        ]
    assert Engine(["wan21/micro"], device="cpu").plan(ask()).request.numerics is Numerics.EXACT
    with pytest.raises(RequestError) as caught:
        engine.run_many([ask()], numerics="quick")
    assert code(caught) == "FV314"


def test_plan_tells_sizes_and_steps_and_loads_nothing(engine: Engine, ask: Ask) -> None:
    plan = engine.plan(ask(steps=4, frames=9))
    assert plan.steps == 1 + 1 + 4 + 4
    assert engine.plan(ask(steps=4, frames=9, guidance=1.0)).steps == 9
    assert plan.weights == {
        name: engine.instance("wan21/micro").component_bytes(name) for name in TINY.components
    }
    assert all(plan.weights[name] >= 4 * spec.parameters for name, spec in TINY.components.items())
    assert plan.peak_bytes >= sum(plan.weights.values())
    assert plan.peak_bytes_offloaded <= plan.peak_bytes
    assert engine.instance("wan21/micro").loaded == ()
    assert engine.counters() == NOTHING


def test_plan_of_a_model_whose_weights_are_absent_needs_none_of_them(ask: Ask) -> None:
    engine = Engine(["wan21/t2v-14b"], device="cpu", dtype="bfloat16")
    plan = engine.plan(Request(prompt="a ball", size=(832, 480), frames=81))
    in_float32 = (
        plan.weights["transformer"] - 2 * 14_288_491_584
    )  # modules that diffusers keeps so, rotary tables
    assert in_float32 == 59_416_576


def test_first_model_is_the_default_and_others_are_refused(ask: Ask) -> None:
    other = derive(TINY, model_id="wan21/other", defaults={"frames": 1})
    with Engine([other, "wan21/micro"], device="cpu") as engine:
        assert engine.plan(Request(prompt="a ball")).request.model == "wan21/other"
        assert engine.plan(Request(prompt="a ball", model="wan21/micro")).request.frames == 17
        with pytest.raises(PluginError) as caught:
            engine.plan(Request(prompt="a ball", model="wan21/t2v-14b"))
        assert code(caught) == "FV101"
        assert "wan21/other, wan21/micro" in caught.value.message


def test_engine_without_models_takes_any_installed_one(ask: Ask) -> None:
    with Engine(device="cpu") as engine:
        assert engine.plan(ask()).request.model == "wan21/tiny"
        assert engine.run(ask(model="wan21/micro")).used.model == "wan21/micro"
        with pytest.raises(PluginError):
            engine.plan(ask(model="wan21/absent"))


def test_card_that_breaks_a_rule_is_refused_before_anything_else() -> None:
    with pytest.raises(CardError) as caught:
        Engine([derive(TINY, recipe={"steps": 0})], device="cpu")
    assert code(caught) == "FV203"


def test_two_models_do_not_share_components(ask: Ask) -> None:
    other = derive(TINY, model_id="wan21/other")
    with Engine(["wan21/micro", other], device="cpu") as engine:
        one, two = (engine.run(ask(model=model)) for model in ("wan21/micro", "wan21/other"))
        assert np.array_equal(one.frames, two.frames)
        assert one.used.card_digest != two.used.card_digest
        first, second = (engine.instance(model).component("vae") for model in ("wan21/micro", "wan21/other"))
        assert first is not second


def test_what_cannot_fit_is_refused_before_it_is_loaded(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fv_core.runtime.residency.free_bytes", lambda device: 1000)
    with pytest.raises(ResourceError) as caught:
        engine.run(ask())
    assert code(caught) == "FV401"
    assert engine.instance("wan21/micro").loaded == ()
    assert engine.counters() == NOTHING


def test_absent_weights_are_told_before_a_request_is_taken(tmp_path: Path, ask: Ask) -> None:
    engine = Engine([TINY], device="cpu", weights=tmp_path / "absent")
    with pytest.raises(WeightsError) as caught:
        engine.run(ask())
    assert code(caught) == "FV252"
    assert engine.counters() == NOTHING


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"device": "gpu"}, "FV312"),
        ({"offload": "component", "device": "cpu"}, "FV312"),
        ({"offload": "layers", "device": "cpu"}, "FV312"),
        ({"models": ["wan21/absent"]}, "FV101"),
        ({"extensions": ["wan21/absent"]}, "FV107"),
        ({"numerics": "quick"}, "FV314"),
        ({"models": ["wan21/micro", "wan21/micro"]}, "FV310"),
        ({"models": ["wan21/micro", "wan21/t2v-1.3b"], "weights": "folder"}, "FV310"),
        ({"models": [], "weights": "folder"}, "FV310"),
        ({"models": TINY, "weights": 5}, "FV310"),
        ({"models": 5}, "FV310"),
        ({"models": [5]}, "FV310"),
        ({"device": 5}, "FV312"),
        ({"extensions": 5}, "FV316"),
        ({"reuse": "no"}, "FV310"),
        ({"require_certified": "no"}, "FV310"),
        ({"cache_bytes": 5}, "FV310"),
        ({"cache_bytes": {"stream": "much"}}, "FV310"),
        ({"adapter_bytes": "much"}, "FV310"),
        ({"memory": "much"}, "FV312"),
    ],
)
def test_engine_options_are_checked_when_it_is_made(option: dict[str, Any], expected: str) -> None:
    with pytest.raises(FvError) as caught:
        Engine(**option)
    assert code(caught) == expected


def test_a_way_to_offload_that_is_none_is_told_all_there_are() -> None:
    for way, legal in (("cpu", "auto, none, component"), ("component", "auto, none")):
        with pytest.raises(RequestError) as caught:
            Engine(device="cpu", offload=way)  # type: ignore[arg-type]
        assert caught.value.legal == legal


def test_what_is_no_request_is_refused_by_its_place_before_any_starts(engine: Engine, ask: Ask) -> None:
    wrong: Any = "a red ball"
    for call in (engine.run, engine.plan, engine.start, engine.accept):
        with pytest.raises(RequestError, match=r"FV310 request: is of type str and no request"):
            call(wrong)
    with pytest.raises(RequestError, match=r"FV310 requests\[1\]: is of type str"):
        engine.run_many([ask(), wrong])
    no_list: Any
    for no_list in (ask(), wrong, 5):
        with pytest.raises(RequestError, match=r"FV310 requests: .* not several requests"):
            engine.run_many(no_list)
    assert engine.counters() == NOTHING
    assert engine.forwards() == ()
    assert [one.ok for one in engine.run_many(iter([ask()]))] == [True]  # type: ignore[arg-type]


def test_precision_that_is_not_the_cards_is_refused(ask: Ask) -> None:
    with pytest.raises(RequestError) as caught:
        Engine(["wan21/micro"], device="cpu", dtype="float64").plan(ask())
    assert code(caught) == "FV313"


def test_dtype_is_that_of_the_components_that_follow_the_run(ask: Ask) -> None:
    with Engine(["wan21/micro"], device="cpu", dtype="bfloat16") as engine:
        clip = engine.run(ask())
        transformer, vae = (
            engine.instance("wan21/micro").component(name).module for name in ("transformer", "vae")
        )
    assert clip.used.dtype == "bfloat16"
    assert transformer.get_parameter("blocks.0.attn1.to_q.weight").dtype == torch.bfloat16
    assert transformer.get_parameter("blocks.0.norm2.weight").dtype == torch.float32
    assert {parameter.dtype for parameter in vae.parameters()} == {torch.float32}


def test_closed_engine_refuses_everything_and_closing_twice_is_once(ask: Ask) -> None:
    engine = Engine(["wan21/micro"], device="cpu")
    job = engine.start(ask())
    job.step()
    taken = engine.snapshot(job)
    engine.close()
    engine.close()
    for refused in (
        lambda: engine.run(ask()),
        lambda: engine.plan(ask()),
        lambda: engine.resume(taken),
        lambda: engine.instance("wan21/micro"),
    ):
        with pytest.raises(RunError) as caught:
            refused()
        assert code(caught) == "FV506"
    job.step()
    assert job.error is not None
    assert job.error.code == "FV506"
    assert engine.counters() == NOTHING


@pytest.mark.parametrize("steps", range(8))
def test_closing_the_engine_gives_back_what_a_job_holds_wherever_it_stands(steps: int, ask: Ask) -> None:
    engine = Engine(["wan21/micro"], device="cpu")
    job = engine.start(ask(output=OutputSpec(keep=("cond",))))
    for _ in range(steps):
        if not job.done:
            job.step()
    engine.close()
    assert engine.counters() == NOTHING
    if not job.done:
        job.step()
        assert job.error is not None
        assert job.error.code == "FV506"
    with pytest.raises(RunError) as caught:
        job.step()
    assert code(caught) == "FV509"
    assert engine.counters() == NOTHING


def test_a_job_that_is_over_or_not_there_yet_says_so(engine: Engine, ask: Ask) -> None:
    done, closed, going = engine.start(ask()), engine.start(ask()), engine.start(ask())
    with pytest.raises(RunError, match="has no clip yet") as caught:
        engine.clip(going)
    assert code(caught) == "FV509"
    while not done.done:
        done.step()
    closed.step()
    closed.close()
    for over in (done, closed):
        with pytest.raises(RunError, match="has no step left") as caught:
            over.step()
        assert code(caught) == "FV509"
    with pytest.raises(RunError) as caught:
        engine.snapshot(closed)
    assert code(caught) == "FV509"
    with pytest.raises(RunError) as caught:
        advance([going, done])
    assert code(caught) == "FV509"
    assert (going.run.finished, going.run.state) == ((), None)
    assert engine.clip(done).frames.shape[0] == 5
    for job in (done, going):
        job.close()
    assert engine.counters() == NOTHING


def test_a_failed_job_raises_what_ended_it_when_its_clip_is_asked_for(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    def fail(forward: Any) -> None:
        raise ArithmeticError("no")

    watch.before = fail
    job = engine.start(ask())
    job.step()
    with pytest.raises(RunError, match="no") as caught:
        engine.clip(job)
    assert code(caught) == "FV502"
    with pytest.raises(RunError) as caught:
        job.step()
    assert code(caught) == "FV509"
    assert caught.value.__cause__ is job.error


@pytest.mark.parametrize("promise", ["reference", "exact", "fast", *Numerics])
def test_start_takes_every_promise_by_name(promise: str, engine: Engine, ask: Ask) -> None:
    job = engine.start(ask(), numerics=promise)
    assert job.run.request.numerics is Numerics(promise)
    job.close()


@pytest.mark.parametrize("promise", ["FAST", "quick", "", 3, True, ["fast"]])
def test_start_refuses_any_other_promise(promise: Any, engine: Engine, ask: Ask) -> None:
    for start in (
        lambda: engine.start(ask(), numerics=promise),
        lambda: engine.run_many([ask()], numerics=promise),
        lambda: engine.run(ask(numerics=promise)),
        lambda: Engine(["wan21/micro"], device="cpu", numerics=promise),
    ):
        with pytest.raises(RequestError) as caught:
            start()
        assert code(caught) == "FV314"
    assert engine.counters() == NOTHING


def test_job_is_stepped_by_hand_and_gives_back_what_it_holds(engine: Engine, ask: Ask) -> None:
    job = engine.start(ask())
    held = []
    while not job.done:
        job.step()
        held.append(engine.counters())
    assert {counters.requests for counters in held} == {1}
    assert max(counters.values for counters in held) == 2
    assert max(counters.caches for counters in held) == 1
    clip = engine.clip(job)
    assert isinstance(clip, Clip)
    job.close()
    job.close()
    assert engine.counters() == NOTHING
    assert np.array_equal(clip.frames, engine.run(ask()).frames)


def test_cancelled_job_raises_cancelled(engine: Engine, ask: Ask) -> None:
    cancel = CancelScope()
    job = engine.start(ask(), cancel=cancel)
    job.step()
    cancel.cancel()
    job.step()
    assert job.done
    with pytest.raises(FvError) as caught:
        engine.clip(job)
    assert code(caught) == "FV510"


def test_observer_that_fails_at_the_start_with_more_than_an_error_leaks_nothing(
    engine: Engine, ask: Ask
) -> None:
    def interrupt(event: RequestEvent) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.start(ask(), observer=interrupt)
    assert engine.counters() == NOTHING


def test_video_outside_its_range_is_refused_with_and_without_an_observer(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    watch.after = lambda forward, outputs: [
        _brighter(each) if forward.op == "decode" else each for each in outputs
    ]
    for observer in (None, lambda event: None):
        (bad,) = engine.run_many([ask()], observer=observer)
        assert bad.error is not None
        assert bad.error.code == "FV502"
    assert engine.counters() == NOTHING


def _brighter(out: Any) -> Any:
    frames = out.output.tensors["frames"] + 2.0
    return replace(out, output=replace(out.output, tensors={"frames": frames}))
