"""The programs: encode, denoise in one stage or two, then decode picture and sound side by side."""

from __future__ import annotations

from typing import Final

from fv_core.program import Compare, ComponentNode, InputSpec, LoopNode, Node, Program, When
from fv_core.request import Modality

SAMPLE_RATE: Final = 48_000
"""Hz of the vocoder's waveform."""

_GUIDED: Final = When(field="guidance", compare=Compare.GREATER, value=1.0)
_AUDIBLE: Final = When(field="params.audio", compare=Compare.EQUAL, value=True)
_TEXT: Final = {"text_video": "text_video", "text_audio": "text_audio", "text_mask": "text_mask"}


def two_stages(*, image: bool) -> Program:
    """Denoise at half the size, upsample the latent, refine at full size. With `image` the clip begins with one."""
    return _program(
        _encode("encode", "encode prompt", "request.prompt"),
        _connect(guided=False),
        *_denoise("base", "denoise at half size", image=image, divisor=2, writes=("draft", "draft_audio", "rng")),
        ComponentNode(
            id="denormalise",
            label="denormalise",
            component="statistics",
            op="denormalise",
            reads={"latent": "draft", "audio_latent": "draft_audio"},
            writes={"latent": "plain_draft", "audio_latent": "plain_draft_audio"},
        ),
        ComponentNode(
            id="upsample",
            label="upsample",
            component="upsampler",
            op="upsample",
            reads={"latent": "plain_draft"},
            writes={"latent": "upsampled"},
        ),
        ComponentNode(
            id="normalise",
            label="normalise",
            component="statistics",
            op="normalise",
            reads={"latent": "upsampled", "audio_latent": "plain_draft_audio"},
            writes={"latent": "rough", "audio_latent": "rough_audio"},
        ),
        LoopNode(
            id="refine",
            label="refine",
            loop="refine_image" if image else "refine",
            reads={**_TEXT, "latent": "rough", "audio_latent": "rough_audio", "rng": "rng"},
            writes={"latent": "latent", "audio_latent": "audio_latent"},
            tensors=("latent", "audio_latent"),
        ),
        image=image,
    )  # fmt: skip


def one_stage(*, image: bool) -> Program:
    """Denoise at full size with guidance. With `image` the clip begins with one."""
    return _program(
        _encode("encode", "encode prompt", "request.prompt"),
        _encode("encode_negative", "encode negative prompt", "request.negative_prompt", "negative_", _GUIDED),
        _connect(guided=True),
        *_denoise("base", "denoise", image=image, divisor=1, writes=("latent", "audio_latent", "rng")),
        image=image,
    )


def _program(*nodes: Node, image: bool) -> Program:
    decode = (
        ComponentNode(
            id="decode",
            label="decode video",
            component="vae",
            op="decode",
            reads={"latent": "latent"},
            writes={"frames": "video"},
        ),
        ComponentNode(
            id="decode_audio",
            label="decode audio",
            component="audio_vae",
            op="decode",
            reads={"latent": "audio_latent"},
            writes={"mel": "mel"},
            when=_AUDIBLE,
        ),
        ComponentNode(
            id="vocode",
            label="vocode",
            component="vocoder",
            op="vocode",
            reads={"mel": "mel"},
            writes={"audio": "audio"},
            when=_AUDIBLE,
        ),
    )
    return Program(
        nodes=(*nodes, *decode),
        artifacts={"video": "video", "audio": "audio"},
        inputs=(InputSpec(modality=Modality.IMAGE),) if image else (),
        sample_rate=SAMPLE_RATE,
    )


def _encode(ident: str, label: str, prompt: str, prefix: str = "", when: When | None = None) -> ComponentNode:
    return ComponentNode(
        id=ident,
        label=label,
        component="text",
        op="encode",
        reads={"text": prompt},
        writes={"hidden": f"{prefix}hidden", "mask": f"{prefix}mask"},
        when=when,
    )


def _connect(*, guided: bool) -> ComponentNode:
    negative = ("negative_hidden", "negative_mask") if guided else ()
    return ComponentNode(
        id="connect",
        label="connect text",
        component="connectors",
        op="connect",
        reads={name: name for name in ("hidden", "mask", *negative)},
        writes={"video": "text_video", "audio": "text_audio", "mask": "text_mask"},
        optional=negative,
    )


def _denoise(
    loop: str, label: str, *, image: bool, divisor: int, writes: tuple[str, str, str]
) -> tuple[Node, ...]:
    """The first stage, after the node that encodes its image, if it has one."""
    stage = LoopNode(
        id=loop,
        label=label,
        loop=f"{loop}_image" if image else loop,
        reads={**_TEXT, "image": "image"} if image else _TEXT,
        writes=dict(zip(("latent", "audio_latent", "rng"), writes, strict=True)),
        tensors=("image",) if image else (),
    )
    encode = ComponentNode(
        id="encode_image",
        label="encode image",
        component="vae",
        op="encode",
        reads={"image": "request.image", "width": "request.width", "height": "request.height"},
        writes={"latent": "image"},
        static={"divisor": divisor},
    )
    return (encode, stage) if image else (stage,)
