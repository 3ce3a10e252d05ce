"""Programs of the common tasks, so that a card states only what is its own."""

from __future__ import annotations

from fv_core.program.program import Compare, ComponentNode, LoopNode, Program, When


def text_to_video(*, encode: str, denoise: str, decode: str) -> Program:
    """Encode the prompt (and, with guidance, the negative prompt), denoise a latent, decode it to frames.

    Args:
        encode: component id of the text encoder; op `encode`, row `text`, output `embeds`.
        denoise: loop id; reads `cond` and optionally `uncond`, writes `latent`.
        decode: loop id; reads `latent`, writes `video`.
    """
    guided = When(field="guidance", compare=Compare.GREATER, value=1.0)
    return Program(
        nodes=(
            ComponentNode(
                id="encode",
                label="encode prompt",
                component=encode,
                op="encode",
                reads={"text": "request.prompt"},
                writes={"embeds": "cond"},
            ),
            ComponentNode(
                id="encode_negative",
                label="encode negative prompt",
                component=encode,
                op="encode",
                reads={"text": "request.negative_prompt"},
                writes={"embeds": "uncond"},
                when=guided,
            ),
            LoopNode(
                id="denoise",
                label="denoise",
                loop=denoise,
                reads={"cond": "cond", "uncond": "uncond"},
                writes={"latent": "latent"},
                optional=("uncond",),
            ),
            LoopNode(
                id="decode",
                label="decode",
                loop=decode,
                reads={"latent": "latent"},
                writes={"video": "video"},
            ),
        ),
        artifacts={"video": "video"},
    )
