"""The executor: what shares a forward, and that one request's fault never reaches another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fv_core import CancelScope, Engine, ModelCard, OutputSpec, Request, derive
from fv_core.errors import FvError
from fv_core.extend.chain import Chain
from fv_core.loop import CacheMode, CallOutput, ComponentCall, ComponentOutput, LoopOutputs
from fv_core.plugins import find_card
from fv_core.request import Numerics
from fv_core.runtime.execution.calls import Work
from fv_core.runtime.execution.executor import execute
from fv_core.runtime.gain import Always
from fv_core.runtime.job import Job, advance

Ask = Callable[..., Request]


def joint() -> ModelCard:
    card = find_card("wan21/micro")
    return derive(
        card, loops={**card.loops, "denoise": replace(card.loops["denoise"], params={"cfg": "joint"})}
    )


def started(engine: Engine, requests: list[Request]) -> list[Job]:
    return [engine.start(request) for request in requests]


def run(jobs: list[Job]) -> None:
    while going := [job for job in jobs if not job.done]:
        advance(going)


def code(job: Job) -> str | None:
    return None if job.error is None else job.error.code


def test_reference_numerics_mean_a_forward_for_every_call(engine: Engine, watch: Any, ask: Ask) -> None:
    run(started(engine, [ask(prompt=f"{n} cars", numerics=Numerics.REFERENCE) for n in range(3)]))
    assert watch.sizes("text") == [1] * 4  # all are guided away from one negative prompt
    assert watch.sizes("transformer") == [1] * 12


def test_fast_calls_of_equal_shape_share_a_forward_and_others_run_beside(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    requests = [
        ask(seed=1), ask(seed=2, guidance=1.0), ask(seed=3, size=(32, 16)), ask(seed=4, numerics=Numerics.REFERENCE),
    ]  # fmt: skip
    jobs = [engine.start(request, numerics=Numerics.FAST) for request in requests]
    run(jobs)
    assert [code(job) for job in jobs] == [None] * 4
    first_step = watch.sizes("transformer")[: len(watch.sizes("transformer")) // 2]
    assert sorted(first_step) == [1, 1, 2, 3]


def test_a_group_runs_in_one_forward_unconditional_first_under_any_numerics(
    watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for numerics in Numerics:
        watch.forwards.clear()
        with Engine([joint()], device="cpu", gain=Always()) as engine:
            watch.put_on(engine, monkeypatch)
            run(started(engine, [ask(seed=seed, steps=1, numerics=numerics) for seed in range(2)]))
        # under exact the first and the last group are checked
        sizes = {Numerics.REFERENCE: [2, 2], Numerics.EXACT: [4, 2, 2], Numerics.FAST: [4]}
        assert watch.sizes("transformer") == sizes[numerics]
        texts = [row["text"] for forward in watch.of("transformer") for row in forward.rows]
        assert torch.equal(texts[0], texts[2])  # both of the blank negative prompt
        assert torch.equal(texts[1], texts[3])
        assert not torch.equal(texts[0], texts[1])


def test_components_see_tensors_where_loops_pass_references(engine: Engine, watch: Any, ask: Ask) -> None:
    run(started(engine, [ask(numerics=Numerics.REFERENCE)]))
    assert {type(row) for forward in watch.of("transformer") for row in forward.rows[0].values()} == {
        torch.Tensor,
        int,
    }
    assert watch.of("transformer")[0].rows[0]["text"] is watch.of("transformer")[2].rows[0]["text"]


def embeds_of(engine: Engine, ask: Ask, prompt: str) -> torch.Tensor:
    """By which a watch knows the calls of a request."""
    return engine.run(ask(prompt=prompt, steps=1, output=OutputSpec(keep=("cond",)))).tensors["cond"]


@pytest.mark.parametrize("numerics", Numerics)
def test_a_call_that_raises_ends_its_request_alone(
    numerics: Numerics, engine: Engine, watch: Any, ask: Ask
) -> None:
    """Under fast numerics it shares a forward with the others."""
    alone, bad = engine.run(ask(numerics=numerics)), embeds_of(engine, ask, "a blue square")

    def refuse(forward: Any) -> None:
        if forward.component == "transformer" and any(torch.equal(row["text"], bad) for row in forward.rows):
            raise ArithmeticError("no blue")

    watch.before = refuse
    prompts = ("a red circle", "a blue square", "a red circle")
    jobs = started(engine, [ask(prompt=prompt, numerics=numerics) for prompt in prompts])
    run(jobs)
    assert [code(job) for job in jobs] == [None, "FV502", None]
    assert "transformer.velocity: raised ArithmeticError: no blue (given latent float32 [16, " in str(
        jobs[1].error
    )
    for job in (jobs[0], jobs[2]):
        tolerance = 1e-4 if numerics is Numerics.FAST else 0.0
        torch.testing.assert_close(job.run.tensor("video"), alone.tensors["video"], rtol=0, atol=tolerance)


def test_after_a_failed_call_the_rest_of_its_plan_is_not_computed(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    def refuse(forward: Any) -> None:
        if forward.component == "transformer":
            raise ArithmeticError

    watch.before = refuse
    run([job := engine.start(ask(numerics=Numerics.REFERENCE))])
    assert code(job) == "FV502"
    assert watch.sizes("transformer") == [1]


FAULTS: dict[str, tuple[str, Callable[[list[ComponentOutput]], list[Any]]]] = {
    "too few outputs": ("'0 outputs'", lambda outputs: []),
    "too many outputs": ("'2 outputs'", lambda outputs: outputs * 2),
    "no return": ("'None'", lambda outputs: None),  # type: ignore[dict-item, return-value]
    "no list": ("'a ComponentOutput'", lambda outputs: outputs[0]),  # type: ignore[dict-item, return-value]
    "another type": ("a str in it", lambda outputs: ["velocity"]),
    "a tensor": ("float32 [16, 2, 2, 2] in it", lambda outputs: [outputs[0].output.tensors["velocity"]]),
    "no call output": ("a dict in it", lambda outputs: [ComponentOutput(output={})]),  # type: ignore[arg-type]
    "no tensor": ("output velocity", lambda outputs: named(velocity=[1.0])),
    "no outputs at all": ("no such output, but none at all", lambda outputs: named()),
    "another name": ("no such output, but velocty", lambda outputs: named(velocty=torch.zeros(1))),
    "a cache too many": ("'1 of them'", lambda outputs: [replace(outputs[0], caches=([],))]),
}


def named(**tensors: Any) -> list[ComponentOutput]:
    return [ComponentOutput(output=CallOutput(tensors=tensors))]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_component_that_breaks_its_contract_ends_the_request_alone(
    kind: str, engine: Engine, watch: Any, ask: Ask
) -> None:
    words, spoil = FAULTS[kind]
    bad = "a blue square"

    def after(forward: Any, outputs: list[ComponentOutput]) -> list[Any]:
        spoiled = forward.component == "transformer" and any(
            torch.equal(row["text"], text) for row in forward.rows
        )
        return spoil(outputs) if spoiled else outputs

    text = embeds_of(engine, ask, bad)
    watch.after = after
    good, failed = started(engine, [ask(), ask(prompt=bad)])
    run([good, failed])
    assert (code(good), code(failed)) == (None, "FV502")
    assert words in str(failed.error)
    assert "component transformer.velocity" in str(failed.error)


WRONG: dict[str, tuple[str, str, Callable[[torch.Tensor], Any], str]] = {
    "broadcast": ("velocity", "velocity", lambda value: value[:1], "float32 [1, 2, 2, 2]"),
    "batch axis": ("velocity", "velocity", lambda value: value[None], "drop the batch axis"),
    "complex": ("velocity", "velocity", lambda value: value.to(torch.complex64), "complex64 [16, 2, 2, 2]"),
    "whole numbers": ("velocity", "velocity", lambda value: value.long(), "int64 [16, 2, 2, 2]"),
    "latent cut": ("prepare", "latent", lambda value: value[:, :1], "float32 [16, 1, 2, 2]"),
    "bytes": ("decode", "frames", lambda value: (value * 255).byte(), "uint8 [1, 16, 16, 3]"),
    "channels first": ("decode", "frames", lambda value: value.permute(0, 3, 1, 2), "float32 [1, 3, 16, 16]"),
    "no frame": ("decode", "frames", lambda value: value[:0], "float32 [0, 16, 16, 3]"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_an_output_of_another_shape_or_type_is_told_by_who_returned_it(
    kind: str, engine: Engine, watch: Any, ask: Ask
) -> None:
    op, name, spoil, words = WRONG[kind]

    def after(forward: Any, outputs: list[ComponentOutput]) -> list[ComponentOutput]:
        return with_output(outputs[0], name, spoil) if forward.op == op else outputs

    watch.after = after
    run([job := engine.start(ask())])
    assert code(job) == "FV502"
    where = "transformer" if op == "velocity" else "vae"
    assert f"output {name} of component {where}.{op}" in str(job.error)
    assert words in str(job.error)


def test_a_loop_that_fails_on_a_result_is_told_with_what_came_back(
    engine: Engine, watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that looks an output up by a name that nothing has."""
    job = engine.start(ask())
    while job.run.current.id != "denoise":
        job.step()
    monkeypatch.setattr(job.run.loop, "predict", lambda state, result: result.outputs[0].tensors["velocty"])
    job.step()
    assert code(job) == "FV502"
    assert "loop of node denoise: raised KeyError: 'velocty'" in str(job.error)
    assert "given transformer.velocity: velocity float32 [16, 2, 2, 2]; transformer." in str(job.error)


def test_an_output_that_a_loop_does_not_finish_with_is_told(
    engine: Engine, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = engine.start(ask())
    while job.run.current.id != "denoise":
        job.step()
    finished = LoopOutputs(slots={"latents": torch.zeros(1)})
    monkeypatch.setattr(job.run.loop, "finalize", lambda state: finished)
    run([job])
    assert code(job) == "FV502"
    assert "output latent of node denoise 'no such output, but latents'" in str(job.error)


def with_output(
    output: ComponentOutput, name: str, spoil: Callable[[torch.Tensor], Any]
) -> list[ComponentOutput]:
    tensors = {name: spoil(output.output.tensors[name])}
    return [replace(output, output=CallOutput(tensors=tensors))]


def test_an_output_that_a_node_writes_is_told_where_it_does_not_come_back(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    watch.after = lambda forward, outputs: (
        named(embed=torch.zeros(1)) if forward.component == "text" else outputs
    )
    run([job := engine.start(ask())])
    assert code(job) == "FV502"
    assert "of component text." in str(job.error)
    assert "no such output, but embed" in str(job.error)


@pytest.mark.parametrize("answer", [{}.__getitem__, lambda op, call: []], ids=["raises", "unhashable"])
@pytest.mark.parametrize("numerics", Numerics)
def test_a_bad_batch_key_ends_the_request_alone(
    numerics: Numerics,
    answer: Callable[..., Any],
    engine: Engine,
    watch: Any,
    ask: Ask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transformer = engine.instance("wan21/micro").component("transformer")
    original = transformer.batch_key

    def key(op: str, call: Any) -> Any:
        return answer(op, call) if call.rows["latent"].shape[-1] == 4 else original(op, call)

    monkeypatch.setattr(transformer, "batch_key", key)
    good, failed = started(engine, [ask(numerics=numerics), ask(size=(32, 16), numerics=numerics)])
    run([good, failed])
    assert (code(good), code(failed)) == (None, "FV502")


@pytest.mark.parametrize("caches", [(), (None,), ("x",)], ids=["none come back", "not appended", "no list"])
def test_a_cache_to_append_to_must_come_back(
    caches: tuple[Any, ...], engine: Engine, watch: Any, ask: Ask
) -> None:
    watch.after = lambda forward, outputs: (
        [replace(each, caches=caches) for each in outputs] if forward.op == "decode" else outputs
    )
    run([job := engine.start(ask())])
    assert code(job) == "FV502"
    assert "vae.decode" in str(job.error)


def decoding(engine: Engine, ask: Ask) -> Work:
    """The step of a request that decodes its second latent frame."""
    job = engine.start(ask())
    while job.run.current.id != "decode" or job.run.state is None or not job.run.state.chunks:
        job.step()
    work = job.work()
    assert work is not None
    return work


def test_a_cache_that_is_only_read_stays_and_must_not_come_back(engine: Engine, watch: Any, ask: Ask) -> None:
    work = decoding(engine, ask)
    (call,) = work.plan.calls
    reading = replace(call, caches=tuple(replace(use, mode=CacheMode.READ) for use in call.caches))
    work = replace(work, plan=replace(work.plan, calls=(reading,)))
    watch.after = lambda forward, outputs: [replace(each, caches=(None,)) for each in outputs]
    for _ in range(2):  # reading uses nothing up
        (result,) = execute([work])
        assert not isinstance(result, FvError)
        assert result.caches == (tuple(use.ref for use in call.caches),)
    watch.after = lambda forward, outputs: outputs
    (result,) = execute([work])
    assert isinstance(result, FvError)


def test_a_step_executed_twice_finds_its_cache_used_up(engine: Engine, ask: Ask) -> None:
    work = decoding(engine, ask)
    (first,), (second,) = execute([work]), execute([work])
    assert not isinstance(first, FvError)
    assert isinstance(second, FvError)
    assert second.code == "FV505"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("can't allocate memory: 9 bytes"),
    ],
)
def test_out_of_memory_ends_the_request_with_its_own_code(
    error: Exception, engine: Engine, watch: Any, ask: Ask
) -> None:
    def fail(forward: Any) -> None:
        raise error

    watch.before = fail
    run([job := engine.start(ask())])
    assert code(job) == "FV402"
    assert job.error is not None
    assert job.error.__cause__ is error


def test_an_error_of_fv_passes_as_it_is(engine: Engine, watch: Any, ask: Ask) -> None:
    raised = FvError("FV254", name="weights", rule="are odd", remedy="None.")

    def fail(forward: Any) -> None:
        raise raised

    watch.before = fail
    run([job := engine.start(ask())])
    assert job.error is raised


def test_nothing_requires_grad_in_a_run(engine: Engine, watch: Any, ask: Ask) -> None:
    modes: list[bool] = []
    watch.before = lambda forward: modes.append(torch.is_grad_enabled())
    run([job := engine.start(ask())])
    assert set(modes) == {False}
    assert not any(slot.requires_grad for slot in job.run.slots.values() if isinstance(slot, torch.Tensor))


def test_cancelled_request_computes_nothing(engine: Engine, watch: Any, ask: Ask) -> None:
    cancel = CancelScope()
    cancel.cancel()
    run([job := engine.start(ask(), cancel=cancel)])
    assert code(job) == "FV510"
    assert watch.forwards == []


@pytest.mark.parametrize(("parts", "sizes"), [((0, 0), [2]), ((0, 1), [1, 1])])
def test_fast_calls_share_a_forward_only_with_equal_static_values(
    parts: tuple[int, int], sizes: list[int], engine: Engine, watch: Any, ask: Ask
) -> None:
    requests = [ask(prompt=f"{number} cars", numerics=Numerics.FAST) for number in range(2)]
    works = [job.work() for job in started(engine, requests)]
    changed = []
    for work, part in zip(works, parts, strict=True):
        assert work is not None
        (call,) = work.plan.calls
        plan = replace(work.plan, calls=(replace(call, static={"part": part}),))
        changed.append(replace(work, plan=plan))
    execute(changed)
    assert watch.sizes("text") == sizes


def test_fast_calls_of_two_models_run_beside(watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    twin = derive(find_card("wan21/micro"), model_id="wan21/twin")
    with Engine(["wan21/micro", twin], device="cpu") as engine:
        for model in ("wan21/micro", "wan21/twin"):
            text = engine.instance(model).component("text")
            monkeypatch.setattr(text, "forward_batch", watch._wrapped("text", text.forward_batch))
        run(
            started(
                engine, [ask(model=m, steps=1, numerics=Numerics.FAST) for m in ("wan21/micro", "wan21/twin")]
            )
        )
    assert watch.sizes("text") == [1] * 4


def test_cancelled_request_loads_nothing(engine: Engine, ask: Ask) -> None:
    cancel = CancelScope()
    cancel.cancel()
    run([job := engine.start(ask(), cancel=cancel)])
    assert code(job) == "FV510"
    assert engine.instance("wan21/micro").loaded == ()


def test_the_first_error_of_a_request_stays_and_the_rest_of_its_forward_is_dropped(
    engine: Engine, watch: Any, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both branches of a fast request share a forward, so both outputs are there when the first turns out wrong."""
    seen: list[str] = []

    def computed(chain: Chain, call: ComponentCall, plan: Any, output: CallOutput) -> None:
        if call.component == "transformer":
            seen.append(call.branch)
            raise ArithmeticError(f"fault {len(seen)} on {call.branch}")

    monkeypatch.setattr(Chain, "computed", computed)
    run([job := engine.start(ask(numerics=Numerics.FAST))])
    assert watch.sizes("transformer") == [2]
    assert seen == ["cond"]
    assert "raised ArithmeticError: fault 1 on cond" in str(job.error)


def test_a_failed_request_gives_back_what_it_holds_while_its_neighbours_go_on(
    engine: Engine, watch: Any, ask: Ask
) -> None:
    def refuse(forward: Any) -> None:
        if forward.component == "transformer" and forward.rows[0]["latent"].shape[-1] == 4:
            raise ArithmeticError

    watch.before = refuse
    good, failed = started(engine, [ask(), ask(size=(32, 16))])
    while not failed.done:
        advance([good, failed])
    assert (code(failed), good.done) == ("FV502", False)
    assert engine.counters().requests == 1
    run([good])
    assert code(good) is None
