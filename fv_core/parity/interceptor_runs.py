"""Gates on what runs with an interceptor come to: the same however they are run, and nothing where it is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing

from fv_core.card import derive
from fv_core.codec import JSON
from fv_core.errors import FvError
from fv_core.extend.chain import Chain
from fv_core.loop import WorkKind
from fv_core.parity.bits import bits, fingerprint
from fv_core.parity.endings import left_behind
from fv_core.parity.interception import InterceptorTrial, Moment
from fv_core.parity.neighbours import interleaved
from fv_core.parity.taps import steps
from fv_core.parity.trial import Finding
from fv_core.request import Numerics
from fv_core.runtime.extensions import check_recipe
from fv_core.runtime.run import RequestRun


def state(trial: InterceptorTrial) -> Finding:
    """What it remembers is of the type that it declares, and comes back from a snapshot taken after any step."""
    wrong, taken = [], 0
    with closing(trial.engine.start(trial.requests[0])) as job:
        for step in steps(job):
            taken += 1
            at = f"after step {taken}, in {step.node.id}"
            try:
                with closing(trial.engine.resume(trial.engine.snapshot(job))) as again:
                    if _states(again.run) != _states(job.run):
                        wrong.append(f"{at}, its state comes back as another")
            except FvError as error:
                wrong.append(f"{at}: {error.code}: {error.message}")
    return Finding(wrong=wrong, of=taken, counted="states that do not come back")


def repetition(trial: InterceptorTrial) -> Finding:
    """A request comes to the same bits again, whatever ran before it."""
    wrong = ["a second run differs"] if trial.run(trial.requests[0]) != trial.alone[0] else []
    return Finding(wrong=wrong, of=1, counted="further runs that differ")


def branches(trial: InterceptorTrial) -> Finding:
    """What it answers on a guidance branch, and remembers of it, is the same where the other branches are not run."""
    wrong = []
    seen = [_kept(moment) for moment in trial.moments(trial.requests[0])]
    for branch in sorted({moment.at.branch for moment in seen}):
        chain = Chain(enabled=[trial.fresh()])
        own = [moment for moment in seen if moment.at.branch == branch]
        for moment in own:
            answer = chain.answer(moment.call, moment.plan)
            if answer is None and not moment.answered:
                chain.computed(moment.call, moment.plan, moment.output)
            elif answer is None or bits(answer.tensors) != bits(moment.output.tensors):
                wrong.append(f"{moment.place} comes to something else without the other branches")
                break
    return Finding(wrong=wrong, of=len(seen), counted="branches that differ alone")


def interleave(trial: InterceptorTrial) -> Finding:
    """Requests that take steps together, and in turn the other way round, come to the bits that each comes to alone."""
    wrong = interleaved(trial.engine, trial.requests, trial.alone)
    return Finding(wrong=wrong, of=2 * len(trial.requests), counted="interleaved requests that differ")


def resume(trial: InterceptorTrial) -> Finding:
    """A request stored after any step goes on to the same bits with the interceptor made anew."""
    wrong, taken = [], 0
    with closing(trial.engine.start(trial.requests[0])) as job:
        for step in steps(job):
            taken += 1
            with closing(trial.engine.resume(trial.engine.snapshot(job))) as again:
                again.run.extensions = (trial.fresh(),)
                for node in again.run.frontier.values():
                    node.chain.enabled = again.run.extensions
                while not again.done:
                    again.step()
                if bits(trial.engine.clip(again).tensors) != trial.alone[0]:
                    wrong.append(f"resumed after step {taken}, in {step.node.id}, it differs")
    return Finding(wrong=wrong, of=taken, counted="snapshots that do not come back")


def off(trial: InterceptorTrial) -> Finding:
    """Engines without it compute what they did before it was imported: it changes calls, never the process."""
    wrong = []
    assert len(trial.alone) == len(trial.requests)  # it has run
    with trial.new_engine(trial.card) as new:
        for which, engine in (("an engine that was there before", trial.plain.engine), ("a new engine", new)):
            for request, untouched in zip(trial.requests, trial.untouched, strict=True):
                if bits(engine.run(request).tensors) != untouched:
                    wrong.append(f"{which}, without it, comes to other bits than before it was imported")
    return Finding(wrong=wrong, of=2 * len(trial.requests), counted="requests without it that differ")


def leak(trial: InterceptorTrial) -> Finding:
    """Finished requests leave nothing behind with it."""

    def runs() -> int:
        for request in trial.requests:
            trial.engine.run(request)
        return len(trial.requests)

    return left_behind(trial.engine, runs, "finished")


def truth(trial: InterceptorTrial) -> Finding:
    """One that says it does not alter the distribution leaves every bit as it is."""
    if trial.spec.distribution_altering:
        return Finding(wrong=(), of=0, counted="requests that it says it leaves alone")
    wrong = [
        f"request {number} comes to other bits, and distribution_altering is False"
        for number, (one, other) in enumerate(zip(trial.alone, trial.untouched, strict=True), 1)
        if one != other
    ]
    return Finding(wrong=wrong, of=len(trial.requests), counted="requests that it alters unsaid")


def refusal(trial: InterceptorTrial) -> Finding:
    """Exact requests refuse it if it alters; recipes of a fixed number of steps do if it may skip some."""
    enabled, wrong = trial.fresh(), []
    if trial.spec.distribution_altering and not _refuses(lambda: _started(trial)):
        wrong.append("it alters the distribution, and an exact request takes it")
    fixed = derive(trial.card, recipe={"steps_fixed": True})
    skips = enabled.may_skip and WorkKind.FLOW_DENOISE in trial.spec.loop_kinds
    if skips and not _refuses(lambda: check_recipe([enabled], fixed)):
        wrong.append("it may answer steps, and a recipe of a fixed number of steps takes it")
    return Finding(wrong=wrong, of=2, counted="places that should refuse it")


def _kept(moment: Moment) -> Moment:
    """The moment with outputs that nobody changes later."""
    tensors = {name: tensor.clone() for name, tensor in moment.output.tensors.items()}
    return dataclasses.replace(moment, output=dataclasses.replace(moment.output, tensors=tensors))


def _started(trial: InterceptorTrial) -> None:
    with trial.new_engine(trial.card, trial.spec) as engine:
        engine.start(dataclasses.replace(trial.requests[0], numerics=Numerics.EXACT)).close()


def _refuses(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except FvError:
        return True
    return False


def _states(run: RequestRun) -> JSON:
    return fingerprint({ident: node.chain.states for ident, node in run.frontier.items()})
