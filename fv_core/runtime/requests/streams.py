"""Whether the loops that a program streams to can take what comes chunk by chunk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fv_core.card import ModelCard
from fv_core.errors import CardError
from fv_core.loop import Loop
from fv_core.program import LoopNode


def check_streams(card: ModelCard, loops: Mapping[str, Loop[Any, Any]]) -> None:
    """Raises:
    CardError: FV221, a node reads a stream and its loop has no `feed`.
    """
    for task, program in card.programs.items():
        for node in program.nodes:
            if isinstance(node, LoopNode) and node.streams and not hasattr(loops[node.loop], "feed"):
                raise CardError(
                    "FV221",
                    name=f'card "{card.model_id}": programs.{task}.{node.id}.streams',
                    value=node.streams[0],
                    rule=f"is a stream, and {card.loops[node.loop].loop} has no `feed` to take one",
                    legal="streams into a StreamLoop",
                    remedy="Take the role out of `streams`, or bind a loop that has `feed`.",
                )
