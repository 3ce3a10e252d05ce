"""Programs compose components and loops into tasks. Data only; free of torch and numpy."""

from fv_core.program.builders import text_to_video
from fv_core.program.given import given_nodes
from fv_core.program.program import (
    PLAIN_SLOTS,
    REQUEST_NUMBERS,
    Compare,
    ComponentNode,
    InputSpec,
    LoopNode,
    Node,
    Plain,
    Program,
    When,
    request_value,
)

__all__ = [
    "PLAIN_SLOTS",
    "REQUEST_NUMBERS",
    "Compare",
    "ComponentNode",
    "InputSpec",
    "LoopNode",
    "Node",
    "Plain",
    "Program",
    "When",
    "given_nodes",
    "request_value",
    "text_to_video",
]
