"""Loops: state machines that the runtime drives step by step. The contracts here are free of torch and numpy."""

from fv_core.loop.contract import FlowLoop, Loop, LoopEnv, LoopOutputs, Slot, StreamLoop, held_refs
from fv_core.loop.work import (
    CacheMode,
    CacheUse,
    CallOutput,
    Component,
    ComponentCall,
    ComponentOutput,
    Done,
    Emission,
    ResolvedCall,
    StepResult,
    Waiting,
    WorkKind,
    WorkPlan,
)

__all__ = [
    "CacheMode",
    "CacheUse",
    "CallOutput",
    "Component",
    "ComponentCall",
    "ComponentOutput",
    "Done",
    "Emission",
    "FlowLoop",
    "Loop",
    "LoopEnv",
    "LoopOutputs",
    "ResolvedCall",
    "Slot",
    "StepResult",
    "StreamLoop",
    "Waiting",
    "WorkKind",
    "WorkPlan",
    "held_refs",
]
