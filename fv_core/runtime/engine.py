"""The synchronous engine: makes cards resident when they are needed and drives requests to their clips."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import torch

from fv_core.card import ModelCard
from fv_core.errors import FvError, PluginError, RequestError
from fv_core.extend import InterceptorSpec
from fv_core.media import Clip
from fv_core.plugins import find_card
from fv_core.program import LoopNode
from fv_core.request import CancelScope, Numerics, Request, ResolvedRequest, UsedInput
from fv_core.runtime import snapshot
from fv_core.runtime.admission import admit
from fv_core.runtime.batching import MAX_BATCH, Batching, Forwards, checked_limit
from fv_core.runtime.certified import check_covered, require_certified
from fv_core.runtime.device import free_bytes, pick_device, pick_dtype
from fv_core.runtime.engine_options import by_id, checked_offload, checked_weights, valid
from fv_core.runtime.environment import differences, environment
from fv_core.runtime.estimate import RunPlan, plan_run
from fv_core.runtime.extensions import Extension, check_extensions, check_recipe, enable
from fv_core.runtime.faults import unforeseen
from fv_core.runtime.gain import Gain, Measured
from fv_core.runtime.inputs import Inputs
from fv_core.runtime.instance import ModelInstance, Offload, closed
from fv_core.runtime.job import Job, Observer, advance
from fv_core.runtime.models import default_model
from fv_core.runtime.params import build_loops, check_params
from fv_core.runtime.resolve import Settled, checked_numerics, settle
from fv_core.runtime.results import finished_clip
from fv_core.runtime.resumable import check_fits, header_of
from fv_core.runtime.run import RequestRun
from fv_core.runtime.scope import Counters, RequestScope, Stores, over
from fv_core.runtime.snapshot import RequestSnapshot
from fv_core.weights.store import locate


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One request's outcome: a clip, or the error that ended it."""

    request: Request
    clip: Clip | None
    error: FvError | None

    @property
    def ok(self) -> bool:
        return self.error is None


class Engine:
    """Resident models and the requests that run on them. Use it as a context manager, or `close` it.

    One thread drives an engine; cancelling may come from any.

    Args:
        models: ids of installed cards, or cards, or one of them; the first is the default. None named: any
            installed card.
        device: auto, cpu, cuda, cuda:N or mps.
        dtype: auto, or a precision of the card.
        weights: folder of the weights, for an engine of one model; None finds them.
        offload: none, component (one component on the device at a time), or auto: what the card's default
            request needs on this device.
        extensions: interceptors to switch on, or one of them.
        numerics: what a request that does not say gets.
        max_batch: rows that one forward has at most, 1 to 256; 1 lets no calls share one.
        gain: decides whether calls that may share a forward should; None: measured here, and shared while it saves
            time. `Always()` shares whatever it takes, which counts forwards the same on every machine.
        require_certified: run only models whose every claimed rung holds a certificate for this machine; the
            first request for a model then loads all of its weights to compare them. Fast requests are refused
            (FV606), and so is an engine with an interceptor that alters.
    """

    def __init__(
        self,
        models: str | ModelCard | Sequence[str | ModelCard] = (),
        *,
        device: str = "auto",
        dtype: str = "auto",
        weights: str | Path | None = None,
        offload: Literal["auto", "none", "component"] = "auto",
        extensions: str | InterceptorSpec | Sequence[Extension] = (),
        numerics: Numerics | str = Numerics.EXACT,
        max_batch: int = MAX_BATCH,
        gain: Gain | None = None,
        require_certified: bool = False,
    ) -> None:
        models = (models,) if isinstance(models, (str, ModelCard)) else models
        cards = [valid(model) if isinstance(model, ModelCard) else find_card(model) for model in models]
        self._cards = by_id(cards)
        self.device = pick_device(device)
        self._dtype = dtype
        self._weights = checked_weights(weights, cards)
        self._offload = checked_offload(offload, self.device)
        self._extensions = enable(extensions)
        for card in cards:
            check_recipe(self._extensions, card)
        self._numerics = checked_numerics(numerics)
        self._batching = Batching(gain=gain or Measured(self.device), limit=checked_limit(max_batch))
        self._require_certified = require_certified
        if require_certified:
            check_covered(self._extensions)
        self._instances: dict[str, ModelInstance] = {}
        self._stores = Stores()
        self._ids = itertools.count(1)
        self._name = secrets.token_hex(3)  # a request that is resumed elsewhere keeps its id
        self._closed = False

    def plan(self, request: Request) -> RunPlan:
        """What the request would take; loads nothing.

        Raises:
            RequestError: a value is not legal.
        """
        card, settled = self._settled(request)
        return replace(self._plan(card, settled.request), offload=self._offload_of(card).value)

    def run(
        self, request: Request, *, cancel: CancelScope | None = None, observer: Observer | None = None
    ) -> Clip:
        """The request's clip.

        Raises:
            FvError: whatever refused or ended it (RequestError, WeightsError, ResourceError, RunError, Cancelled).
        """
        with closing(self.start(request, cancel=cancel, observer=observer)) as job:
            while not job.done:
                job.step()
            return self.clip(job)

    def run_many(
        self,
        requests: Sequence[Request],
        *,
        numerics: Numerics | str | None = None,
        order: Literal["serial", "interleaved"] = "interleaved",
        cancel: CancelScope | None = None,
        observer: Observer | None = None,
    ) -> list[Result]:
        """One result per request, in input order; one that fails leaves the others alone.

        Args:
            numerics: for the requests that do not say.
            order: interleaved takes one step of each in turn, which lets compatible requests share forwards.
            cancel: cancels all of them.
        """
        default = self._numerics if numerics is None else checked_numerics(numerics)
        if order not in ("serial", "interleaved"):
            raise RequestError(
                "FV310",
                name="order",
                value=order,
                rule="is not an order of steps",
                legal="serial, interleaved",
                remedy="Leave it out for interleaved.",
            )
        if order == "serial":
            return [
                outcome for one in requests for outcome in self._together([one], default, cancel, observer)
            ]
        return self._together(requests, default, cancel, observer)

    def start(
        self,
        request: Request,
        *,
        numerics: Numerics | str | None = None,
        cancel: CancelScope | None = None,
        observer: Observer | None = None,
    ) -> Job:
        """Takes a request on without stepping it. The caller steps the job and closes it.

        Args:
            numerics: for a request that does not say.

        Raises:
            FvError: the request is refused.
        """
        card, settled = self._settled(request, numerics)
        check_extensions(self._extensions, card, settled.request.numerics)
        instance = self._instance(card)
        plan = self._plan(card, settled.request)
        admit(plan, instance)
        instance.check(tuple(plan.weights))
        inputs = {
            slot: torch.from_numpy(content).to(instance.device)
            for slot, content in settled.inputs.contents.items()
        }
        name = f"r{next(self._ids)}-{self._name}"
        job = self._job(name, settled.request, instance, cancel, observer, inputs)
        with _closing_on_error(job):
            job.announce()
        return job

    def snapshot(self, job: Job) -> RequestSnapshot:
        """The job between two steps, for any process with the same card.

        Raises:
            RunError: FV501 the run is not finite, FV504 it cannot be stored, FV509 the job has failed or was closed.
        """
        if job.run.scope.closed:
            raise over(job.run.id, "holds nothing to snapshot: it failed or was closed")
        return snapshot.take(job.run, header_of(job.run))

    def resume(
        self, taken: RequestSnapshot, *, cancel: CancelScope | None = None, observer: Observer | None = None
    ) -> Job:
        """The job of a snapshot. Another numeric environment is told in the job's notes.

        Raises:
            RunError: FV504, another card, plugin version, kind of device, weights, precision or set of extensions, or
                a file that was edited.
            RequestError: FV301 to FV314, the card refuses the snapshot's request.
        """
        header = taken.header
        if self._require_certified:
            check_covered(self._extensions, header.request.numerics)
        instance = self._instance(self._card(header.request.model))
        check_fits(header, instance, self._extensions)
        plan = self._plan(instance.card, header.request)
        admit(plan, instance)
        instance.check(tuple(plan.weights))
        job = self._job(header.request_id, header.request, instance, cancel, observer)
        with _closing_on_error(job):
            snapshot.restore(job.run, taken)
        changed = differences(header.environment, environment(instance.card, instance.device))
        job.run.notes += tuple(f"resumed in another environment: {difference}" for difference in changed)
        return job

    def clip(self, job: Job) -> Clip:
        """The clip of a job that is done.

        Raises:
            FvError: what ended the job; FV509, it is not done.
        """
        if job.error is not None:
            raise job.error
        if not job.done:
            raise over(job.run.id, "has no clip yet: it is not done")
        return finished_clip(job, self._extensions)

    def instance(self, model_id: str) -> ModelInstance:
        """The resident instance of a model, made now if it is not (its components still load when needed)."""
        return self._instance(self._card(model_id))

    def counters(self) -> Counters:
        """What requests hold; all zero when none runs."""
        return self._stores.counters()

    def forwards(self) -> tuple[Forwards, ...]:
        """How often each operation of a component has run on this engine, and with how many rows."""
        return self._batching.forwards()

    def close(self) -> None:
        """Drops weights and caches and what open jobs hold, which end with FV506; closing twice is the same as once."""
        self._closed = True
        for scope in tuple(self._stores.open):
            scope.close()
        for instance in self._instances.values():
            instance.close()
        self._instances.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settled(self, request: Request, numerics: Numerics | str | None = None) -> tuple[ModelCard, Settled]:
        card = self._card(request.model)
        default = self._numerics if numerics is None else checked_numerics(numerics)
        settled = settle(request, card, default)
        if self._require_certified:
            check_covered(self._extensions, settled.request.numerics)
        return card, replace(settled, request=check_params(settled.request, card, build_loops(card)))

    def _card(self, model_id: str | None) -> ModelCard:
        if self._closed:
            raise closed("engine")
        if model_id is None:
            return next(iter(self._cards.values())) if self._cards else default_model()
        if model_id in self._cards or not self._cards:
            return self._cards.get(model_id) or find_card(model_id)
        raise PluginError(
            "FV101",
            name="model",
            value=model_id,
            rule="is not one that this engine was made for",
            legal=", ".join(self._cards),
            remedy="Name it in Engine(models=[...]).",
        )

    def _plan(self, card: ModelCard, settled: ResolvedRequest) -> RunPlan:
        loops = build_loops(card)
        nodes = card.programs[settled.task].active(settled)
        steps = sum(loops[node.loop].total(settled) if isinstance(node, LoopNode) else 1 for node in nodes)
        dtype = pick_dtype(self._dtype, card, self.device)
        return plan_run(card, settled, steps=steps, dtype_bytes=dtype.itemsize, offload=self._offload)

    def _instance(self, card: ModelCard) -> ModelInstance:
        if card.model_id not in self._instances:
            instance = ModelInstance(
                card,
                device=self.device,
                dtype=pick_dtype(self._dtype, card, self.device),
                folder=locate(card, self._weights),
                offload=self._offload_of(card),
                batching=self._batching,
            )
            if self._require_certified:
                require_certified(instance)
            self._instances[card.model_id] = instance
        return self._instances[card.model_id]

    def _offload_of(self, card: ModelCard) -> Offload:
        if self._offload != "auto":
            return Offload(self._offload)
        if self.device.type == "cpu":
            return Offload.NONE
        program = card.programs[card.capabilities[0]]
        brought = Inputs(
            used=tuple(UsedInput(modality=one.modality, path="", sha256="") for one in program.inputs)
        )
        settled = settle(Request(prompt=card.model_id), card, self._numerics, brought)
        usual = self._plan(card, settled.request)
        return Offload.COMPONENT if usual.peak_bytes > free_bytes(self.device) else Offload.NONE

    def _job(
        self,
        request_id: str,
        settled: ResolvedRequest,
        instance: ModelInstance,
        cancel: CancelScope | None,
        observer: Observer | None,
        inputs: Mapping[str, torch.Tensor] | None = None,
    ) -> Job:
        scope = RequestScope(request_id, self._stores)
        try:
            run = RequestRun(
                request_id,
                settled,
                instance,
                scope,
                cancel=cancel or CancelScope(),
                extensions=self._extensions,
                inputs=inputs,
            )
        except BaseException:
            scope.close()
            raise
        return Job(run, observer)

    def _together(
        self,
        requests: Sequence[Request],
        numerics: Numerics,
        cancel: CancelScope | None,
        observer: Observer | None,
    ) -> list[Result]:
        jobs: list[Job | FvError] = []
        try:
            for request in requests:
                jobs.append(self._started(request, numerics, cancel, observer))
            while going := [job for job in jobs if isinstance(job, Job) and not job.done]:
                advance(going)
            return [self._outcome(one, job) for one, job in zip(requests, jobs, strict=True)]
        finally:
            for job in jobs:
                if isinstance(job, Job):
                    job.close()

    def _started(
        self, request: Request, numerics: Numerics, cancel: CancelScope | None, observer: Observer | None
    ) -> Job | FvError:
        try:
            return self.start(request, numerics=numerics, cancel=cancel, observer=observer)
        except Exception as error:  # one request's fault, whatever it is, is not its neighbours'
            return unforeseen(error, f"the start of a request for {request.model or 'the default model'}")

    def _outcome(self, request: Request, job: Job | FvError) -> Result:
        if isinstance(job, FvError):
            return Result(request=request, clip=None, error=job)
        try:
            return Result(request=request, clip=self.clip(job), error=None)
        except Exception as error:
            return Result(request=request, clip=None, error=unforeseen(error, f"the clip of {job.run.id}"))


@contextmanager
def _closing_on_error(job: Job) -> Iterator[None]:
    try:
        yield
    except BaseException:
        job.close()
        raise
