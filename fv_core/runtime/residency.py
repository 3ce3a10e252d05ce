"""The models of one engine on its device: what is reserved for whom, who must leave, who sleeps."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, Literal, TypeAlias

import torch

from fv_core.adapters.pool import AdapterPool
from fv_core.card import ModelCard
from fv_core.errors import RequestError, ResourceError
from fv_core.home import home
from fv_core.memory import Budget, Claim, Tag, Ticket
from fv_core.runtime.adapters import AdapterStack
from fv_core.runtime.admission import claims_of, weight_claims
from fv_core.runtime.batching import Batching
from fv_core.runtime.device import free_bytes
from fv_core.runtime.estimate import RunPlan
from fv_core.runtime.instance import ModelInstance, Offload, require_component
from fv_core.runtime.intake import Intake
from fv_core.runtime.records.certified import require_certified
from fv_core.runtime.stores import Stores
from fv_core.weights.layout import named
from fv_core.weights.store import locate

SleepIn: TypeAlias = Literal["auto", "host", "disk"]
"""Where weights sleep; auto: in host memory, on a device that has none of its own in a file."""


_KEPT: Final = "what is kept"


class Residency:
    """Keeps the weights of several models within one budget.

    Weights that no open request needs make room for those that one needs, the least recently used model first:
    unloaded, or put to sleep where they were changed.

    Args:
        intake: makes of a card what it is on this device.
        memory: most bytes of the device to use; None: what it has.
        batching: what instances share.
        stores: what requests hold, and what is kept of earlier ones: the first to leave.
        adapters: the next ones, since they are read again when they are needed.
    """

    def __init__(
        self,
        intake: Intake,
        *,
        memory: int | None,
        batching: Batching,
        stores: Stores,
        adapters: AdapterPool,
    ) -> None:
        self.device = intake.device
        self.budget = Budget(f"on {self.device}", 0, remedy=_eases(self.device))
        self._intake = intake
        self._memory = memory
        self._batching = batching
        self._stores = stores
        self._adapters = adapters
        self._kept = self.budget.book(_KEPT, ())
        self._instances: OrderedDict[str, ModelInstance] = OrderedDict()  # the least recently used first
        self._described: dict[str, ModelInstance] = {}
        self._sketches: dict[str, ModelInstance] = {}
        self._files = 0
        self._name = secrets.token_hex(6)

    def instance(self, card: ModelCard) -> ModelInstance:
        """The instance of a card, made now if there is none; its components load when they are needed.

        Raises:
            WeightsError: its weights are not here. ParityError: FV601 or FV602, it has to be certified and is not.
        """
        known = self._instances.get(card.model_id)
        if known is None:
            known = self._instances[card.model_id] = self._made(card)
        elif self._intake.certified:
            for component_id in known.loaded:
                known.notice_changes(component_id)
            if known.changed:
                require_certified(known)
        return known

    def sketch(self, card: ModelCard) -> ModelInstance:
        """An instance that is asked for architectures alone; nothing is made resident."""
        if (known := self._instances.get(card.model_id) or self._sketches.get(card.model_id)) is None:
            known = self._sketches[card.model_id] = self._bare(card, None, Offload.NONE)
        return known

    def described(self, card: ModelCard) -> ModelInstance:
        """What is known of the instance of a card, for another thread than the engine's; nothing is made resident.

        Raises:
            WeightsError: its weights are not here.
        """
        known = self._instances.get(card.model_id) or self._described.get(card.model_id)
        if known is None:
            folder = locate(card, self._intake.weights)
            known = self._described[card.model_id] = self._bare(card, folder, self.offload(card))
        return known

    def offload(self, card: ModelCard) -> Offload:
        """Where the components of a card would rest."""
        return self._intake.offload(self.sketch(card), self.capacity())

    def capacity(self) -> int:
        """Bytes that this engine can use, those that it uses included."""
        resident = sum(instance.device_bytes() for instance in tuple(self._instances.values()))
        held = self._stores.held_bytes() + self._stores.kept_bytes() + self._adapters.bytes
        there = free_bytes(self.device) + resident + held
        return there if self._memory is None else min(self._memory, there)

    def admit(
        self, owner: str, plan: RunPlan, instance: ModelInstance, stack: AdapterStack
    ) -> Sequence[Ticket]:
        """Reserves what a request needs, of the device and of pools; idle models leave where that makes room.

        Raises:
            ResourceError: FV401 or FV404, it can never fit; FV405, it does not fit beside the requests that are open
                now; FV403 or FV406, a model whose weights were changed cannot be put to sleep for it.
        """
        claims = claims_of(plan, instance, stack)
        try:
            rooms = self._stores.reserve(owner, plan.caches, what=_told(plan))
        except ResourceError:
            self._check_device(claims, what=_told(plan))
            raise
        try:
            return [*rooms, self._reserve(owner, claims, instance, what=_told(plan))]
        except BaseException:
            for room in rooms:
                room.close()
            raise

    def check(self, plan: RunPlan, instance: ModelInstance, stack: AdapterStack) -> None:
        """Reserves nothing. For any thread, though one beside the engine's may see memory as taken that is about to be
        known as the engine's own, while weights are loaded.

        Raises:
            ResourceError: FV401 or FV404, the request can never fit.
        """
        self._check_device(claims_of(plan, instance, stack), what=_told(plan))
        self._stores.check(plan.caches, what=_told(plan))

    def sleep(self, instance: ModelInstance, components: Sequence[str], to: SleepIn) -> None:
        """Puts loaded components, all of them where none is named, to sleep.

        Raises:
            RequestError: FV310 no component of the model, FV312 no place to sleep on this device.
            ResourceError: FV407, open requests need them; FV403 or FV406, they cannot be stored.
        """
        chosen = self._idle_ones(instance, components)
        self._check_place(to)
        for component_id in chosen:
            if component_id in instance.loaded:
                instance.sleep(component_id, self._place(instance, component_id, to))

    def wake(self, instance: ModelInstance, components: Sequence[str]) -> None:
        """Wakes components that sleep, all of them where none is named.

        Raises:
            RequestError: FV310, no component of the model.
            ResourceError: FV401 or FV405, they do not fit.
            WeightsError: FV259, what was stored is corrupted.
        """
        chosen = [name for name in _named(instance, components) if name in instance.asleep]
        offloaded = instance.offload is Offload.COMPONENT
        claims = [] if offloaded else list(weight_claims(instance, chosen))
        what = f"waking {', '.join(chosen)} of {instance.card.model_id}"
        with closing(self._reserve(what, claims, instance, what=what)):
            for component_id in chosen:
                instance.component(component_id)

    def unload(self, instance: ModelInstance, components: Sequence[str], *, discard: bool) -> None:
        """Lets go of components, all of them where none is named, and of what is stored of them.

        Raises:
            RequestError: FV310, no component of the model.
            ResourceError: FV407, open requests need them; FV408, their weights were changed and `discard` is not set.
        """
        chosen = self._idle_ones(instance, components)
        for component_id in chosen:
            instance.notice_changes(component_id)
        if not discard and not instance.changed.keys().isdisjoint(chosen):
            raise _would_be_lost(instance, chosen)
        for component_id in chosen:
            instance.unload(component_id)
        self._adapters.drop(instance.card.model_id, components)
        self._stores.forget(
            lambda key: key.model == instance.digest and (not components or key.component in components)
        )

    def close(self) -> None:
        for instance in self._instances.values():
            instance.close()
        self._instances.clear()

    def _bare(self, card: ModelCard, folder: Path | None, offload: Offload) -> ModelInstance:
        dtype = self._intake.dtype(card)
        return ModelInstance(card, device=self.device, dtype=dtype, folder=folder, offload=offload)

    def _made(self, card: ModelCard) -> ModelInstance:
        instance = ModelInstance(
            card,
            device=self.device,
            dtype=self._intake.dtype(card),
            folder=locate(card, self._intake.weights),
            offload=self.offload(card),
            batching=self._batching,
            budget=self.budget,
            neighbours=self._instances.values,
        )
        self._sketches.pop(card.model_id, None)
        if self._intake.certified:
            try:
                require_certified(instance)
            except BaseException:
                instance.close()
                raise
        return instance

    def _reserve(self, owner: str, claims: Sequence[Claim], instance: ModelInstance, *, what: str) -> Ticket:
        self._instances.setdefault(instance.card.model_id, instance)
        self._instances.move_to_end(instance.card.model_id)
        for other in self._instances.values():
            if other is not instance and not self._users(other, other.key("")):
                other.rest()
        self.budget.capacity = self.capacity()
        self._book_kept()
        needed = {claim.key for claim in claims}
        if (lacking := self.budget.lacking(claims)) > 0:
            used = {key for key in self._adapters.sizes() if self._users(instance, key)}
            self._adapters.evict(lacking - self._stores.evict(lacking), needed=needed | used)
            self._book_kept()
        leaving = list(self._idle(needed))
        could_leave = sum(one.component_bytes(component_id) for one, component_id in leaving)
        if self.budget.lacking(claims) <= could_leave:  # else nobody leaves for nothing
            for one, component_id in leaving:
                if self.budget.lacking(claims) > 0:
                    self._evict(one, component_id)
        return self.budget.reserve(owner, claims, what=what)

    def _check_device(self, claims: Sequence[Claim], *, what: str) -> None:
        """What fits neither the device nor a pool is refused for the device, by whose memory pools are cut."""
        Budget(self.budget.place, self.capacity(), remedy=self.budget.remedy).check(claims, what=what)

    def _book_kept(self) -> None:
        self._kept.close()
        adapters = [
            Claim(tag=Tag.WEIGHTS, bytes=size, key=key) for key, size in self._adapters.sizes().items()
        ]
        results = Claim(tag=Tag.CACHES, bytes=self._stores.kept_bytes())
        self._kept = self.budget.book(_KEPT, [results, *adapters])

    def _idle(self, needed: set[object]) -> Iterator[tuple[ModelInstance, str]]:
        """Components on the device that neither open requests nor `needed` name, in the order in which they leave."""
        for instance in self._instances.values():
            if instance.offload is Offload.NONE:
                for component_id in instance.loaded:
                    key = instance.key(component_id)
                    if key not in needed and not self._users(instance, key):
                        yield instance, component_id

    def _evict(self, instance: ModelInstance, component_id: str) -> None:
        instance.notice_changes(component_id)
        if component_id in instance.changed:
            instance.sleep(component_id, self._place(instance, component_id, "auto"))
        else:
            instance.unload(component_id)

    def _users(self, instance: ModelInstance, key: object) -> list[str]:
        """The open requests that need a component or an adapter."""
        return [owner for owner in self.budget.owners(key) if owner not in (instance.card.model_id, _KEPT)]

    def _idle_ones(self, instance: ModelInstance, components: Sequence[str]) -> tuple[str, ...]:
        chosen = _named(instance, components)
        for component_id in (*chosen, ""):
            if users := self._users(instance, instance.key(component_id)):
                raise ResourceError(
                    "FV407",
                    name=f"{component_id or 'model'} of {instance.card.model_id}".removeprefix("model of "),
                    rule=f"is needed by open requests: {', '.join(users)}",
                    remedy="Close them, or wait until they are done.",
                )
        return chosen

    def _place(self, instance: ModelInstance, component_id: str, to: SleepIn) -> Path | None:
        """The file to sleep in; None: host memory."""
        hosted = self.device.type == "cpu" or instance.offload is Offload.COMPONENT
        if to == "host" or (to == "auto" and not hosted):
            return None
        self._files += 1
        model = instance.card.model_id.replace("/", "-")
        name = f"{self._name}-{self._files}-{model}-{component_id}.safetensors"
        return home() / "asleep" / name

    def _check_place(self, to: str) -> None:
        legal = ("auto", "disk") if self.device.type == "cpu" else ("auto", "host", "disk")
        if to not in legal:
            raise RequestError(
                "FV312",
                name="to",
                value=to,
                rule=f"is no place for weights of {self.device} to sleep in",
                legal=", ".join(legal),
                remedy="Leave it at auto.",
            )


def _named(instance: ModelInstance, components: Sequence[str]) -> tuple[str, ...]:
    for component_id in components:
        require_component(instance.card, component_id)
    return tuple(components) or tuple(instance.card.components)


def _would_be_lost(instance: ModelInstance, chosen: Sequence[str]) -> ResourceError:
    lost = {one: tensors for one, tensors in sorted(instance.changed.items()) if one in chosen}
    untold = [f"{one}.{tensor}" for one, tensors in lost.items() for tensor in tensors]
    found = f" (found, since no `weights_changed` told of them: {named(untold)})" if untold else ""
    return ResourceError(
        "FV408",
        name=f"{', '.join(lost)} of {instance.card.model_id}",
        rule=f"has weights that were changed since they were loaded{found}, and unloading would lose them",
        remedy="Put it to sleep instead, or give the changes up with discard=True.",
    )


def _told(plan: RunPlan) -> str:
    return f"{plan.request.model} at {plan.request.size}, {plan.request.frames} frames"


def _eases(device: torch.device) -> str:
    """What to do about a request that can never fit: on a CPU there is nowhere to move weights to."""
    way = "a smaller dtype" if device.type == "cpu" else "offload=component"
    return f"Use a smaller size, fewer frames, {way}, or allow more `memory`."
