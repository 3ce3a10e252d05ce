"""Programs compose components and loops into tasks. Data only; free of torch and numpy."""

from fv_core.program.builders import text_to_video
from fv_core.program.program import (
    REQUEST_NUMBERS,
    REQUEST_SLOTS,
    Compare,
    ComponentNode,
    LoopNode,
    Node,
    Program,
    When,
)

__all__ = [
    "REQUEST_NUMBERS",
    "REQUEST_SLOTS",
    "Compare",
    "ComponentNode",
    "LoopNode",
    "Node",
    "Program",
    "When",
    "text_to_video",
]
