"""A card made resident: components loaded when first needed and shared by every loop that binds them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fv_core.card import ModelCard
from fv_core.errors import RequestError, ResourceError, RunError
from fv_core.loop import Component, Loop
from fv_core.loop.one_call import OneCall
from fv_core.memory import Budget, Claim, Tag, Ticket
from fv_core.program import ComponentNode, Node
from fv_core.runtime.batching import Batching
from fv_core.runtime.building import build_component, component_name, not_its_own
from fv_core.runtime.gain import Measured
from fv_core.runtime.loops import build_loop
from fv_core.weights.asleep import Asleep, put_to_sleep
from fv_core.weights.footprint import bytes_of, share_memory
from fv_core.weights.layout import named
from fv_core.weights.marks import Marks
from fv_core.weights.store import fingerprint

SEED = 0
"""Seed of weights that are initialised rather than read."""


class Offload(StrEnum):
    """Where components rest while another one computes.

    none: on the device. component: in host memory, one component on the device at a time.
    """

    NONE = "none"
    COMPONENT = "component"


class ModelInstance:
    """One card on one device at one precision.

    Args:
        folder: holds its weights; None initialises them from `SEED`.
        budget: what its resident components are booked in, under `key`; those that are offloaded are not.
        batching: its engine's; without one it has its own.
        neighbours: the other instances, whose memory is not to be this one's.
    """

    def __init__(
        self,
        card: ModelCard,
        *,
        device: torch.device,
        dtype: torch.dtype,
        folder: Path | None,
        offload: Offload,
        batching: Batching | None = None,
        budget: Budget | None = None,
        neighbours: Callable[[], Iterable[ModelInstance]] = tuple,
    ) -> None:
        self.card = card
        self.device = device
        self.dtype = dtype
        self.folder = folder
        self.offload = offload
        self.batching = batching or Batching(gain=Measured(device))
        self._components: dict[str, Component] = {}
        self._asleep: dict[str, tuple[Component, Asleep]] = {}
        self._neighbours = neighbours
        self._budget = budget
        self._booked: dict[str, Ticket] = {}
        self._architectures: dict[str, nn.Module] = {}
        self._loops: dict[str, Loop[Any, Any]] = {}
        self._on_device: str | None = None
        self._closed = False
        self._fingerprint: str | None = None
        self._changed: dict[str, tuple[str, ...]] = {}
        self._marks: dict[str, Marks] = {}
        self._sizes: dict[str, int] = {}
        self.loading_s = 0.0
        """Seconds spent loading so far: told apart from computing, or every estimate would start too high."""
        self.version = 0
        """Counts the changes of its weights: what was computed at one version is not what another one computes."""

    @cached_property
    def digest(self) -> str:
        """The card's: computed once, for it names every result that requests share."""
        return self.card.digest()

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def loaded(self) -> tuple[str, ...]:
        """Ids of the components that are loaded and awake, in the order they were needed."""
        return tuple(self._components)

    @property
    def asleep(self) -> tuple[str, ...]:
        """Ids of the components that sleep, in the order they went to sleep."""
        return tuple(self._asleep)

    def key(self, component_id: str) -> Hashable:
        """What a component of this model is called in the budget."""
        return self.card.model_id, component_id

    def component(self, component_id: str) -> Component:
        """The component, loaded or woken if it is not, on the device.

        Raises:
            WeightsError: its weights are absent, damaged or not the card's; FV259, those that were stored are damaged.
            ResourceError: FV408, it was given other weights while it slept.
            PluginError: FV105 its factory does not resolve, FV120 its factory failed, FV123 it gave what another
                component has.
            RunError: FV506, the instance is closed.
        """
        if self._closed:
            raise closed(f"model {self.card.model_id}")
        if component_id not in self._components:
            self._make_room(component_id)
            with self._loading():
                arrived = self._wake if component_id in self._asleep else self._load
                self._components[component_id] = arrived(component_id)
            self._mark(component_id)
            self._book(component_id)
        elif self.offload is Offload.COMPONENT and self._on_device != component_id:
            self._make_room(component_id)
            self._move(component_id, self.device)
        self._on_device = component_id
        return self._components[component_id]

    @property
    def changed(self) -> Mapping[str, tuple[str, ...]]:
        """The components whose weights are no longer what its folder or seed gave, with the names of those tensors
        that were found changed without a word.
        """
        return self._changed

    def weights_changed(self, *component_ids: str) -> None:
        """Tells that weights of these components now have other values; none named: of all that are loaded or sleep.

        Only what torch counts is found without this: not writes through `.data`, numpy or DLPack, nor those of fused
        optimizers.

        Raises:
            RequestError: FV310, no component of the model: what was meant would be taken for unchanged, and dropped.
        """
        for component_id in component_ids:
            require_component(self.card, component_id)
        for component_id in component_ids or (*self.loaded, *self._asleep):
            self._changed.setdefault(component_id, ())
            if component_id in self._components:
                self._mark(component_id)
                self._book(component_id)
        self.version += 1

    def notice_changes(self, component_id: str) -> None:
        """Takes weights that were written to or replaced, and nobody told, for told; see `Marks` for what it sees."""
        untold = self._untold(component_id)
        if untold and self._changed.get(component_id) != untold:
            self.weights_changed(component_id)
            self._changed[component_id] = untold

    def sleep(self, component_id: str, file: Path | None) -> None:
        """Stores the weights of a loaded component in `file`, or in host memory, and gives their memory back.

        Raises:
            ResourceError: FV403 or FV406, it cannot be stored; the component is as it was.
        """
        self.notice_changes(component_id)
        name = self._name(component_id)
        asleep = put_to_sleep(self._components[component_id].module, name, file)
        self._asleep[component_id] = self._components.pop(component_id), asleep
        self._mark(component_id)
        self._free(component_id)

    def unload(self, component_id: str) -> None:
        """Lets go of a component, and of what is stored of it; it is loaded anew when it is needed.

        Changes of its weights are lost, which is a change of them too.
        """
        self._free(component_id)
        self._marks.pop(component_id, None)
        self._architectures.pop(component_id, None)
        self._fingerprint = None  # what its folder holds may be other weights by now
        if component_id in self._asleep:
            _, asleep = self._asleep.pop(component_id)
            asleep.drop()
        self._components.pop(component_id, None)
        if component_id in self._changed:
            del self._changed[component_id]
            self.version += 1

    def rest(self) -> None:
        """Moves the component on the device to host memory, if this model is offloaded."""
        if self.offload is Offload.COMPONENT:
            self._make_room("")
            self._on_device = None

    def architecture(self, component_id: str) -> nn.Module:
        """The component's module; where it is not loaded, or sleeps, one whose weights lie nowhere. For any thread.

        Raises: as `check`.
        """
        if (component := self._components.get(component_id)) is not None:
            return component.module
        if (known := self._architectures.get(component_id)) is None:
            known = self._architectures[component_id] = self._build(component_id, check_only=True).module
        return known

    def loop(self, loop_id: str) -> Loop[Any, Any]:
        """The loop, built once.

        Raises:
            CardError: FV202 its class has not the semantics, FV206 its parameters are not legal.
        """
        if loop_id not in self._loops:
            self._loops[loop_id] = build_loop(self.card, loop_id)
        return self._loops[loop_id]

    def loop_of(self, node: Node) -> Loop[Any, Any]:
        """The loop that runs a program node."""
        return OneCall(node) if isinstance(node, ComponentNode) else self.loop(node.loop)

    def fingerprint(self) -> str:
        """Tells the weights of this instance's folder from others; see `fv_core.weights.store.fingerprint`."""
        if self._fingerprint is None:
            assert self.folder is not None
            self._fingerprint = fingerprint(self.card, self.folder)
        return self._fingerprint

    def check(self, component_ids: Sequence[str]) -> None:
        """Compares the files of these components with their architecture, reading headers alone, once each.

        A request finds out before its first step what a component loaded at its last one would have told.

        Raises:
            WeightsError: FV252 file missing, FV253 file damaged, FV254 not the card's.
        """
        for component_id in component_ids:
            if component_id not in self._asleep:
                self.architecture(component_id)

    def resident_bytes(self) -> int:
        """Bytes of the parameters and buffers of all components that are loaded and awake."""
        return sum(map(self.component_bytes, self.loaded))

    def component_bytes(self, component_id: str) -> int:
        """Bytes of a component's parameters and buffers; those that it will take where it is not loaded, or sleeps.

        Raises: as `check`.
        """
        if (sleeping := self._asleep.get(component_id)) is not None:
            return sleeping[1].bytes
        if (size := self._sizes.get(component_id)) is None:
            # walking every parameter for each request costs milliseconds
            size = self._sizes[component_id] = bytes_of(self.architecture(component_id))
        return size

    def device_bytes(self) -> int:
        """Bytes of the components that are on the device now."""
        if self.offload is Offload.NONE:
            return self.resident_bytes()
        return self.component_bytes(self._on_device) if self._on_device else 0

    def close(self) -> None:
        """Drops the weights and the loops; jobs that still run on them fail with FV506."""
        self._closed = True
        for component_id in (*self._components, *self._asleep):
            self.unload(component_id)
        self._architectures.clear()
        self._loops.clear()

    def _load(self, component_id: str) -> Component:
        self._sizes.pop(component_id, None)  # of the architecture
        component = self._build(component_id, check_only=False)
        for instance in (self, *self._neighbours()):
            for other in (*instance._components, *instance._asleep):
                if share_memory(component.module, instance._module(other)):
                    raise not_its_own(self._name(component_id), instance._name(other))
        return component

    def _wake(self, component_id: str) -> Component:
        component, asleep = self._asleep[component_id]
        if given := self._untold(component_id):
            raise _would_be_lost(self._name(component_id), given)
        asleep.wake()
        del self._asleep[component_id]
        component.module.to(self.device)  # an offloaded one went to sleep elsewhere
        return component

    @contextmanager
    def _loading(self) -> Iterator[None]:
        began = time.perf_counter()
        with torch.inference_mode(False):  # as `_move`
            yield
        self.loading_s += time.perf_counter() - began

    def _mark(self, component_id: str) -> None:
        self._sizes.pop(component_id, None)
        self._marks[component_id] = Marks(self._module(component_id))

    def _untold(self, component_id: str) -> tuple[str, ...]:
        marks = self._marks.get(component_id)
        return () if marks is None else marks.changed(self._module(component_id))

    def _module(self, component_id: str) -> nn.Module:
        """Of a component that is loaded or sleeps."""
        if component_id in self._asleep:
            return self._asleep[component_id][0].module
        return self._components[component_id].module

    def _move(self, component_id: str, device: torch.device) -> None:
        self.notice_changes(component_id)  # a move gives every tensor other memory
        with torch.inference_mode(False):  # whose tensors do not count what is written to them
            self._components[component_id].module.to(device)
        self._mark(component_id)

    def _book(self, component_id: str) -> None:
        if (booked := self._booked.pop(component_id, None)) is not None:
            booked.close()
        if self._budget is not None and self.offload is Offload.NONE:
            claim = Claim(
                tag=Tag.WEIGHTS, bytes=self.component_bytes(component_id), key=self.key(component_id)
            )
            self._booked[component_id] = self._budget.book(self.card.model_id, [claim])

    def _free(self, component_id: str) -> None:
        if (booked := self._booked.pop(component_id, None)) is not None:
            booked.close()
        if self._on_device == component_id:
            self._on_device = None
        self._sizes.pop(component_id, None)

    def _name(self, component_id: str) -> str:
        return component_name(self.card, component_id)

    def _build(self, component_id: str, *, check_only: bool) -> Component:
        return build_component(
            self.card,
            component_id,
            folder=self.folder,
            seed=SEED,
            device=self.device,
            dtype=self.dtype,
            check_only=check_only,
        )

    def _make_room(self, arriving: str) -> None:
        if self.offload is Offload.COMPONENT:
            for component_id in self._components:
                if component_id != arriving:
                    self._move(component_id, torch.device("cpu"))


def closed(name: str) -> RunError:
    """FV506: what was asked of has been closed."""
    return RunError("FV506", name=name, rule="is closed", remedy="Make a new engine.")


def _would_be_lost(name: str, tensors: Sequence[str]) -> ResourceError:
    return ResourceError(
        "FV408",
        name=name,
        rule=f"was given other weights while it slept, and waking would lose them: {named(tensors)}",
        remedy="Change weights when they are awake; `Engine.unload` with discard=True gives these up.",
    )


def require_component(card: ModelCard, component_id: str) -> None:
    """Raises:
    RequestError: FV310, no component of the card.
    """
    if component_id not in card.components:
        raise RequestError(
            "FV310",
            name="components",
            value=component_id,
            rule=f"is no component of {card.model_id}",
            legal=", ".join(card.components),
            remedy="Name some of these, or none for all of them.",
        )
