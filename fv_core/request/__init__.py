"""Requests, the events they cause and what they really used. Free of torch and numpy."""

from fv_core.request.adapter import Adapter, BoundAdapter, UsedAdapter
from fv_core.request.cancel import CancelScope
from fv_core.request.events import Failed, Finished, Loading, MediaChunk, RequestEvent, Started, StepDone
from fv_core.request.priority import Priority
from fv_core.request.request import EVERYTHING, Numerics, OutputSpec, Request, ResolvedRequest, Size
from fv_core.request.task import Modality, ModalPart, TaskType, UsedInput
from fv_core.request.used import Environment, Used
from fv_core.request.visible import is_visible, shows_something

__all__ = [
    "EVERYTHING",
    "Adapter",
    "BoundAdapter",
    "CancelScope",
    "Environment",
    "Failed",
    "Finished",
    "Loading",
    "MediaChunk",
    "ModalPart",
    "Modality",
    "Numerics",
    "OutputSpec",
    "Priority",
    "Request",
    "RequestEvent",
    "ResolvedRequest",
    "Size",
    "Started",
    "StepDone",
    "TaskType",
    "Used",
    "UsedAdapter",
    "UsedInput",
    "is_visible",
    "shows_something",
]
