"""The programs: encode, roll chunks out, and decode each while the next is made."""

from __future__ import annotations

from fv_core.program import ComponentNode, InputSpec, LoopNode, Program
from fv_core.request import Modality


def from_text(rollout: str) -> Program:
    """Text to video with the loop `rollout`."""
    return Program(nodes=(_prompt(), _rollout(rollout), _decode()), artifacts={"video": "video"})


def from_pixels(rollout: str, modality: Modality) -> Program:
    """An image or a video goes on as a video, whose first frames it is, with the loop `rollout`."""
    spec = InputSpec(modality=modality, sizes=True)
    encode = ComponentNode(
        id="encode_prefix",
        label=f"encode {modality}",
        component="vae",
        op="encode",
        reads={"pixels": spec.slot, "width": "request.width", "height": "request.height"},
        writes={"latent": "prefix"},
    )
    return Program(
        nodes=(_prompt(), encode, _rollout(rollout, "prefix"), _decode()),
        artifacts={"video": "video"},
        inputs=(spec,),
    )


def _prompt() -> ComponentNode:
    return ComponentNode(
        id="encode",
        label="encode prompt",
        component="text",
        op="encode",
        reads={"text": "request.prompt"},
        writes={"embeds": "cond"},
    )


def _rollout(loop: str, *tensors: str) -> LoopNode:
    return LoopNode(
        id="rollout",
        label="make chunks",
        loop=loop,
        reads={"cond": "cond", **{name: name for name in tensors}},
        writes={"latent": "latent"},
        tensors=tensors,
    )


def _decode() -> LoopNode:
    return LoopNode(
        id="decode",
        label="decode",
        loop="decode",
        reads={"latent": "latent"},
        writes={"video": "video"},
        streams=("latent",),
    )
