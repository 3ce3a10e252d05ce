"""From a settled request to its job: what it takes, the memory reserved for that, and a run that is ready to step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import torch

from fv_core.adapters.pool import AdapterPool
from fv_core.request import CancelScope, ResolvedRequest
from fv_core.runtime.adapters import AdapterStack, bind_adapters
from fv_core.runtime.estimate import RunPlan
from fv_core.runtime.instance import ModelInstance
from fv_core.runtime.intake import Intake
from fv_core.runtime.job import Job, Observer
from fv_core.runtime.residency import Residency
from fv_core.runtime.run import RequestRun
from fv_core.runtime.scheduler.pricing import Pricing
from fv_core.runtime.scope import RequestScope
from fv_core.runtime.stores import Stores


class Opening:
    """Opens jobs of one engine."""

    def __init__(
        self, intake: Intake, residency: Residency, stores: Stores, pool: AdapterPool, pricing: Pricing
    ) -> None:
        self._intake = intake
        self._residency = residency
        self._stores = stores
        self._pool = pool
        self._pricing = pricing

    def planned(self, request: ResolvedRequest, instance: ModelInstance) -> tuple[RunPlan, AdapterStack]:
        """What the request takes, and the adapters that it takes some of it for."""
        plan = self._intake.plan(instance, request)
        stack = bind_adapters(request, instance, plan.weights.keys(), self._pool)
        return replace(plan, adapters=stack.told(), adapter_bytes=stack.bytes()), stack

    def job(
        self,
        request_id: str,
        plan: RunPlan,
        instance: ModelInstance,
        adapters: AdapterStack,
        cancel: CancelScope | None,
        observer: Observer | None,
        contents: Mapping[str, Any] | None = None,
    ) -> Job:
        """The job of a request that is admitted: what it may take is reserved, and its weights' files are checked.

        Raises:
            ResourceError: FV401 or FV404 it never fits, FV405 it does not fit now. WeightsError: as `check`.
        """
        self._stores.renew(instance.digest, instance.version)
        scope = RequestScope(request_id, self._stores)
        try:
            scope.own(self._residency.admit(request_id, plan, instance, adapters))
            instance.check(tuple(plan.weights))
            run = self._run(request_id, plan.request, instance, scope, contents, cancel, adapters)
        except BaseException:
            scope.close()
            raise
        quote = self._pricing.quote(instance, plan.request)
        return Job(run, quote, observer)

    @contextmanager
    def unstarted(
        self,
        request_id: str,
        request: ResolvedRequest,
        instance: ModelInstance,
        adapters: AdapterStack,
        contents: Mapping[str, Any],
    ) -> Iterator[RequestRun]:
        """A run that is to take no step: it has stores of its own and holds no memory of the engine's."""
        with closing(RequestScope(request_id, Stores(self._stores.budgets, reuse=False))) as scope:
            yield self._run(request_id, request, instance, scope, contents, None, adapters)

    def _run(
        self,
        request_id: str,
        request: ResolvedRequest,
        instance: ModelInstance,
        scope: RequestScope,
        contents: Mapping[str, Any] | None,
        cancel: CancelScope | None,
        adapters: AdapterStack,
    ) -> RequestRun:
        return RequestRun(
            request_id,
            request,
            instance,
            scope,
            cancel=cancel or CancelScope(),
            extensions=self._intake.extensions,
            inputs={
                slot: torch.from_numpy(content).to(instance.device)
                for slot, content in (contents or {}).items()
            },
            adapters=adapters,
        )
