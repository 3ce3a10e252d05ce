"""Rules of tasks: a card offers one at least, and none says what contradicts itself or would be ignored."""

from __future__ import annotations

from collections.abc import Iterator

from fv_core.card.card import ModelCard
from fv_core.card.reads import KINDS
from fv_core.errors import CardError
from fv_core.program import LoopNode, Program
from fv_core.request import Modality

_SIZED = (Modality.IMAGE, Modality.VIDEO)


def offered(card: ModelCard) -> Iterator[CardError]:
    """FV219: there is something to ask of the card."""
    if not card.programs:
        yield CardError(
            "FV219",
            name="programs",
            rule="are none, so that no request could ask anything of the card",
            legal="a program for one task at least",
            remedy="Add one, as `fv_core.program.text_to_video` makes it.",
        )


def node_ids(card: ModelCard) -> Iterator[CardError]:
    """FV215: an id tells the nodes of a program apart."""
    for task, program in card.programs.items():
        ids = [node.id for node in program.nodes]
        for ident in sorted({ident for ident in ids if ids.count(ident) > 1}):
            yield CardError(
                "FV215",
                name=f"programs.{task}",
                value=ident,
                rule=f"is the id of {ids.count(ident)} nodes",
                legal="an id per node",
                remedy="Give each node an id of its own.",
            )


def consistent(card: ModelCard) -> Iterator[CardError]:
    """FV221 for each statement of a program that contradicts another, or that nothing would ever read."""
    for task, program in card.programs.items():
        name = f"programs.{task}"
        yield from _inputs(name, program)
        yield from _artifacts(name, program)
        for node in program.nodes:
            roles = (*node.optional, *(node.tensors if isinstance(node, LoopNode) else ()))
            for role in dict.fromkeys(role for role in roles if role not in node.reads):
                legal = ", ".join(node.reads) or "none"
                yield _contradicts(f"{name}.{node.id}", role, "is a role that the node does not read", legal)


def _inputs(name: str, program: Program) -> Iterator[CardError]:
    modalities = [one.modality for one in program.inputs]
    for modality in sorted({one for one in modalities if modalities.count(one) > 1}):
        rule = f"is brought {modalities.count(modality)} times, and has one slot"
        yield _contradicts(f"{name}.inputs", str(modality), rule, "each modality once")
    for one in program.inputs:
        if one.sizes and one.modality not in _SIZED:
            rule = "has no size to give to a request"
            yield _contradicts(f"{name}.inputs.sizes", str(one.modality), rule, ", ".join(_SIZED))


def _artifacts(name: str, program: Program) -> Iterator[CardError]:
    for artifact in program.artifacts:
        if artifact not in KINDS:
            rule = "is no kind of artifact"
            yield _contradicts(f"{name}.artifacts", artifact, rule, ", ".join(KINDS))
    rate = program.sample_rate
    if "audio" in program.artifacts and rate < 1:
        rule = "is no rate of the artifact audio"
        yield _contradicts(f"{name}.sample_rate", rate, rule, "a number from 1 up, in Hz")
    elif "audio" not in program.artifacts and rate:
        yield _contradicts(f"{name}.sample_rate", rate, "is the rate of a sound that there is not", "0")


def _contradicts(name: str, value: object, rule: str, legal: str) -> CardError:
    return CardError(
        "FV221", name=name, value=value, rule=rule, legal=legal, remedy="Correct the program of the task."
    )
