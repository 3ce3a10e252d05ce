"""The synchronous engine: makes cards resident when they are needed and drives requests to their clips."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from fv_core.adapters.pool import AdapterPool
from fv_core.card import ModelCard
from fv_core.errors import RequestError
from fv_core.extend import InterceptorSpec
from fv_core.media import Clip
from fv_core.memory import Tag
from fv_core.request import CancelScope, Numerics, Request
from fv_core.runtime.batching import MAX_BATCH, Batching, Forwards, checked_limit
from fv_core.runtime.engine_options import (
    cache_budgets,
    checked_bytes,
    checked_flag,
    checked_gain,
    checked_memory,
    checked_requests,
)
from fv_core.runtime.environment import differences, environment
from fv_core.runtime.estimate import RunPlan
from fv_core.runtime.extensions import Extension
from fv_core.runtime.gain import Gain
from fv_core.runtime.instance import ModelInstance, closed
from fv_core.runtime.intake import Intake
from fv_core.runtime.job import Job, Observer, closing_on_error
from fv_core.runtime.opening import Opening
from fv_core.runtime.requests.resolve import Settled
from fv_core.runtime.residency import Residency, SleepIn
from fv_core.runtime.results import finished_clip
from fv_core.runtime.scheduler.book import CostBook
from fv_core.runtime.scheduler.pricing import Pricing, Quote
from fv_core.runtime.scope import over
from fv_core.runtime.snapshots import snapshot
from fv_core.runtime.snapshots.resumable import check_fits, header_of
from fv_core.runtime.snapshots.snapshot import RequestSnapshot, SnapshotHeader
from fv_core.runtime.stores import Counters, Stores
from fv_core.runtime.together import Result, Together


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
        memory: most of the device's memory to use, in bytes or as "8GiB"; None: what it has free.
        extensions: interceptors to switch on, or one of them.
        numerics: what a request that does not say gets.
        max_batch: rows that one forward has at most, 1 to 256; 1 lets no calls share one.
        gain: decides whether calls that may share a forward should; None: measured here, and shared while it saves
            time. `Always()` shares whatever it takes, which counts forwards the same on every machine.
        require_certified: run only models whose every claimed rung holds a certificate for this machine; the
            first request for a model then loads all of its weights to compare them. Fast requests are refused
            (FV606), and so are adapters and an engine with an interceptor that alters.
        cache_bytes: the most bytes of pools of caches, or sizes such as "1GiB", by class: stream, slab_kv (both by
            default as much as the device has), paged_kv, text_kv (a quarter of that; none of the four more than
            `memory`) and feature (a sixteenth of `memory`: what text encoders and the like returned). What a card
            states that the caches of a request take is reserved before it begins: more than a whole class is refused
            with FV404, and what does not fit beside open requests waits as for memory.
        reuse: whether what depends on a prompt or an input alone is computed once for all requests that equal in it.
        adapter_bytes: most that adapters may take on the device, as `memory`; the least recently used are dropped.
    """

    def __init__(
        self,
        models: str | ModelCard | Sequence[str | ModelCard] = (),
        *,
        device: str = "auto",
        dtype: str = "auto",
        weights: str | Path | None = None,
        offload: Literal["auto", "none", "component"] = "auto",
        memory: int | str | None = None,
        extensions: str | InterceptorSpec | Sequence[Extension] = (),
        numerics: Numerics | str = Numerics.EXACT,
        max_batch: int = MAX_BATCH,
        gain: Gain | None = None,
        require_certified: bool = False,
        cache_bytes: Mapping[str, int | str] | None = None,
        reuse: bool = True,
        adapter_bytes: int | str = 4 * 2**30,
    ) -> None:
        self._intake = Intake(
            models,
            device=device,
            dtype=dtype,
            weights=weights,
            offload=offload,
            extensions=extensions,
            numerics=numerics,
            certified=checked_flag("require_certified", require_certified),
        )
        self.device = self._intake.device
        self._batching = Batching(gain=checked_gain(gain, self.device), limit=checked_limit(max_batch))
        most = checked_memory(memory)
        self._adapters = AdapterPool(checked_bytes("adapter_bytes", adapter_bytes))
        self._stores = Stores(
            cache_budgets(cache_bytes, self.device, most), reuse=checked_flag("reuse", reuse)
        )
        self._residency = Residency(
            self._intake,
            memory=most,
            batching=self._batching,
            stores=self._stores,
            adapters=self._adapters,
        )
        self.pricing = Pricing(CostBook())
        self._opening = Opening(self._intake, self._residency, self._stores, self._adapters, self.pricing)
        self._ids = itertools.count(1)
        self._name = secrets.token_hex(3)  # a request that is resumed elsewhere keeps its id
        self._closed = False

    def plan(self, request: Request) -> RunPlan:
        """What the request would take; loads nothing.

        Raises:
            RequestError: a value is not legal, or an adapter does not bind.
        """
        card, settled = self._settled(request)
        instance = self._residency.sketch(card)
        plan, _ = self._opening.planned(settled.request, instance)
        offload = self._residency.offload(card)
        seconds = self.pricing.quote(instance, plan.request, offload=offload).eta_s
        return replace(plan, offload=offload.value, seconds=seconds)

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

        Raises:
            RequestError: FV310, something given is no request, or no order: none is started.
        """
        requests = checked_requests(requests)
        default = self._intake.numerics(numerics)
        if order not in ("serial", "interleaved"):
            raise RequestError(
                "FV310",
                name="order",
                value=order,
                rule="is not an order of steps",
                legal="serial, interleaved",
                remedy="Leave it out for interleaved.",
            )

        def start(request: Request) -> Job:
            return self.start(request, numerics=default, cancel=cancel, observer=observer)

        groups = [requests] if order == "interleaved" else [[one] for one in requests]
        return [result for group in groups for result in Together(start, self.clip, cancel).run(group)]

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
            FvError: the request is refused; FV405, it does not fit beside the requests that are open now.
        """
        card, settled = self._settled(request, numerics)
        instance = self._residency.instance(card)
        plan, stack = self._opening.planned(settled.request, instance)
        job = self._opening.job(
            self._new_id(), plan, instance, stack, cancel, observer, settled.inputs.contents
        )
        with closing_on_error(job):
            job.run.notes += self.pricing.notes()
            job.announce()
        return job

    def accept(self, request: Request, *, numerics: Numerics | str | None = None) -> RequestSnapshot:
        """The request before its first step, settled and with its inputs; `resume` starts it. Holds no memory.

        A thread may call it while another one drives the engine.

        Args:
            numerics: for a request that does not say.

        Raises:
            FvError: the request is refused; FV401 or FV404, it can never fit.
        """
        card, settled = self._settled(request, numerics)
        instance = self._residency.described(card)
        plan, stack = self._opening.planned(settled.request, instance)
        self._residency.check(plan, instance, stack)
        with self._opening.unstarted(
            self._new_id(), settled.request, instance, stack, settled.inputs.contents
        ) as run:
            return snapshot.take(run, header_of(run))

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
            RequestError: FV301 to FV314, the card refuses the snapshot's request; FV322, an adapter's file is gone or
                has changed.
        """
        header = taken.header
        self._intake.check_covered(header.request)
        instance = self._residency.instance(self._card(header.request.model))
        check_fits(header, instance, self._intake.extensions)
        plan, stack = self._opening.planned(header.request, instance)
        job = self._opening.job(header.request_id, plan, instance, stack, cancel, observer)
        with closing_on_error(job):
            snapshot.restore(job.run, taken)
        job.quote = self.quote(header)
        changed = differences(header.environment, environment(instance.card, instance.device))
        job.run.notes += tuple(f"resumed in another environment: {difference}" for difference in changed)
        job.run.notes += self.pricing.notes()
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
        self.pricing.keep()
        job.run.notes += self.pricing.notes()
        return finished_clip(job, self._intake.extensions)

    def quote(self, header: SnapshotHeader) -> Quote:
        """What the request of a snapshot is predicted to take, none of its open nodes begun; for any thread."""
        instance = self._residency.described(self._card(header.request.model))
        return self.pricing.quote(instance, header.request, finished=header.finished)

    def instance(self, model_id: str) -> ModelInstance:
        """The resident instance of a model, made now if it is not (its components still load when needed)."""
        return self._residency.instance(self._card(model_id))

    def counters(self) -> Counters:
        """What requests hold, all zero when none runs, and what pools have, ready for later ones included."""
        reserved = self._residency.budget.reserved(Tag.ACTIVATIONS)
        return replace(self._stores.counters(), reserved_bytes=reserved)

    def capacity(self) -> int:
        """Bytes of the device's memory that this engine can use, those that it uses included."""
        return self._residency.capacity()

    def sleep(self, model_id: str, *components: str, to: SleepIn = "auto") -> None:
        """Stores the weights of a model, or of some of its components, and gives their memory back.

        What sleeps wakes by itself when a request needs it, with the same bytes.

        Args:
            to: host (memory), disk (a file under `FV_HOME`), or auto: disk on the CPU and for offloaded models.

        Raises:
            RequestError: FV310 no component of the model, FV312 no place to sleep on this device.
            ResourceError: FV407, open requests need them; FV403 or FV406, they cannot be stored.
        """
        self._residency.sleep(self.instance(model_id), components, to)

    def wake(self, model_id: str, *components: str) -> None:
        """Wakes a model, or some of its components, before a request does.

        Raises:
            RequestError: FV310, no component of the model.
            ResourceError: FV401 or FV405, they do not fit.
            WeightsError: FV259, what was stored is corrupted.
        """
        self._residency.wake(self.instance(model_id), components)

    def unload(self, model_id: str, *components: str, discard: bool = False) -> None:
        """Lets go of the weights of a model or of some of its components, and of adapters and results kept of them.

        They are loaded anew when a request needs them.

        Args:
            discard: whether to give up changes that were made to the weights after they were loaded.

        Raises:
            RequestError: FV310, no component of the model.
            ResourceError: FV407, open requests need them; FV408, they were changed and `discard` is not set.
        """
        self._residency.unload(self.instance(model_id), components, discard=discard)

    def forwards(self) -> tuple[Forwards, ...]:
        """How often each operation of a component has run on this engine, and with how many rows."""
        return self._batching.forwards()

    def close(self) -> None:
        """Drops weights and caches and what open jobs hold, which end with FV506; closing twice is the same as once."""
        self._closed = True
        # Where this fails it was told with a clip, or is lost as in a process that is killed.
        self.pricing.keep(now=True)
        self._stores.close()
        self._residency.close()
        self._adapters.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settled(self, request: Request, numerics: Numerics | str | None = None) -> tuple[ModelCard, Settled]:
        self._require_open()
        return self._intake.settled(request, numerics)

    def _card(self, model_id: str) -> ModelCard:
        self._require_open()
        return self._intake.card(model_id)

    def _require_open(self) -> None:
        if self._closed:
            raise closed("engine")

    def _new_id(self) -> str:
        return f"r{next(self._ids)}-{self._name}"
