"""The cards: the distilled weights in two stages, the base weights with full guidance, and tiny cards of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fv_core.card import (
    AdapterNames,
    CheckpointManifest,
    ComponentSpec,
    Defaults,
    FrameRule,
    LatentSpec,
    Limits,
    LoopSpec,
    Method,
    ModelCard,
    ParamRule,
    ParitySpec,
    RecipeSpec,
    SizeRule,
    derive,
)
from fv_core.request import Size, TaskType
from fv_ltx2.architectures import PUBLISHED, TINY, Architecture, Family
from fv_ltx2.programs import one_stage, two_stages

SEMANTICS: Final = "flow.euler.ltx2/v1"

_SIGMAS: Final = (1.0, 0.99375, 0.9875, 0.98125, 0.975, 0.909375, 0.725, 0.421875)
_REFINE_SIGMAS: Final = (0.909375, 0.725, 0.421875)
_MEL_PER_CELL: Final = 4
_NEGATIVE: Final = "worst quality, inconsistent motion, blurry, jittery, distorted"

_AUDIO: Final = {
    "audio": ParamRule(doc="sound with the picture; false loads neither of its decoders", default=True)
}
_GUIDANCE: Final = {
    "audio_guidance": ParamRule(
        doc="guidance of the sound by the negative prompt, with guidance above 1; 1 is off",
        default=7.0,
        lowest=1.0,
        highest=100.0,
    ),
    "stg": ParamRule(
        doc="guidance of the picture away from a pass that skips self-attention in one block; 0 is off",
        default=1.0,
        highest=10.0,
    ),
    "audio_stg": ParamRule(doc="the same of the sound", default=1.0, highest=10.0),
    "modality": ParamRule(
        doc="guidance of the picture away from a pass in which it does not hear the sound; 1 is off",
        default=3.0,
        lowest=1.0,
        highest=10.0,
    ),
    "audio_modality": ParamRule(doc="the same of the sound", default=3.0, lowest=1.0, highest=10.0),
    "rescale": ParamRule(doc="how far guidance of the picture keeps its contrast; 0 is off", default=0.7),
    "audio_rescale": ParamRule(doc="the same of the sound", default=0.7),
}


_NAMES = {
    "text_encoder": AdapterNames(prefixes=("text_encoder.",)),
    "connectors": AdapterNames(
        prefixes=("connectors.", "text_embedding_projection."), original={"text_proj_in": "aggregate_embed"}
    ),
    "transformer": AdapterNames(
        prefixes=("transformer.", "diffusion_model."),
        original={
            "proj_in": "patchify_proj",
            "audio_proj_in": "audio_patchify_proj",
            "time_embed": "adaln_single",
            "audio_time_embed": "audio_adaln_single",
            "av_cross_attn_video_scale_shift": "av_ca_video_scale_shift_adaln_single",
            "av_cross_attn_video_a2v_gate": "av_ca_a2v_gate_adaln_single",
            "av_cross_attn_audio_scale_shift": "av_ca_audio_scale_shift_adaln_single",
            "av_cross_attn_audio_v2a_gate": "av_ca_v2a_gate_adaln_single",
            "prompt_adaln": "prompt_adaln_single",
            "audio_prompt_adaln": "audio_prompt_adaln_single",
        },
    ),
}
"""By factory. Left diffusers' names, right those of the official release, which ComfyUI keeps."""


def _component(
    name: str, folders: tuple[str, ...], architecture: Architecture, *, memory: str = "", **params: int
) -> ComponentSpec:
    return ComponentSpec(
        load=f"fv_ltx2.loading:{name}",
        subfolders=folders,
        config=architecture.config,
        params=params,
        parameters=architecture.parameters,
        activation=f"fv_ltx2.memory:{memory or name}",
        adapters=_NAMES.get(name),
    )


def _one_stage(family: Family, max_length: int, *, prompts: int) -> dict[str, ComponentSpec]:
    """`prompts`: how many go through the connectors and the transformer at once, 2 with guidance."""
    of_two = "_of_two" if prompts == 2 else ""
    return {
        "text": _component("text_encoder", ("text_encoder", "tokenizer"), family.text, max_length=max_length),
        "connectors": _component(
            "connectors", ("connectors",), family.connectors, memory=f"connectors{of_two}"
        ),
        "transformer": _component(
            "transformer", ("transformer",), family.transformer, memory=f"transformer{of_two}"
        ),
        "vae": _component("vae", ("vae",), family.vae, image_crf=33),
        "audio_vae": _component("audio_vae", ("audio_vae",), family.audio_vae),
        "vocoder": _component("vocoder", ("vocoder",), family.vocoder),
    }


def _two_stages(family: Family, max_length: int) -> dict[str, ComponentSpec]:
    video, audio = family.vae.config["latent_channels"], family.audio_vae.config["base_channels"]
    assert isinstance(video, int) and isinstance(audio, int)
    statistics = ComponentSpec(
        load="fv_ltx2.loading:statistics",
        subfolders=("vae", "audio_vae"),
        params={"video_channels": video, "audio_features": audio},
        activation="fv_ltx2.memory:statistics",
    )
    return {
        **_one_stage(family, max_length, prompts=1),
        "upsampler": _component("upsampler", ("latent_upsampler",), family.upsampler),
        "statistics": statistics,
    }


def _loop(family: Family, **params: float | bool | tuple[float, ...]) -> LoopSpec:
    """A stage of the joint denoise loop; see `fv_ltx2.denoise.JointParams`."""
    channels, mel = family.audio_vae.config["latent_channels"], family.audio_vae.config["mel_bins"]
    assert isinstance(channels, int) and isinstance(mel, int)
    return LoopSpec(
        loop="fv_ltx2.denoise:JointDenoise",
        semantics=SEMANTICS,
        binds={"denoiser": "transformer"},
        params={"audio_channels": channels, "audio_mel": mel // _MEL_PER_CELL, **params},
    )


def _two_stage_loops(family: Family) -> Mapping[str, LoopSpec]:
    return {
        "base": _loop(family, divisor=2),
        "base_image": _loop(family, divisor=2, image=True),
        "refine": _loop(family, refines=True, sigmas=_REFINE_SIGMAS),
        "refine_image": _loop(family, refines=True, sigmas=_REFINE_SIGMAS, image=True),
    }


def _one_stage_loops(family: Family, skip: int) -> Mapping[str, LoopSpec]:
    return {"base": _loop(family, skip=skip), "base_image": _loop(family, skip=skip, image=True)}


def _parity(reference: str) -> ParitySpec:
    return ParitySpec(
        reference=reference, reference_version="0.42.1", runner="fv_ltx2.reference:record", rungs=("C0", "C1")
    )


DISTILLED = ModelCard(
    model_id="ltx2/2.3-distilled",
    family="ltx2",
    version="1",
    summary="LTX-2.3 video with sound in 8 steps at half size and 3 at full size; not yet run with published weights",
    components=_two_stages(PUBLISHED, 1024),
    loops=_two_stage_loops(PUBLISHED),
    programs={TaskType.T2V: two_stages(image=False), TaskType.I2V: two_stages(image=True)},
    recipe=RecipeSpec(
        assumes_loop=SEMANTICS, method=Method.DISTIL, steps=8, steps_fixed=True, sigmas=_SIGMAS
    ),
    parity=_parity("diffusers.LTX2Pipeline + LTX2LatentUpsamplePipeline"),
    checkpoint=CheckpointManifest(repo="FastVideo/LTX2-Distilled-Diffusers"),
    latent=LatentSpec(channels=128, temporal=8, spatial=32),
    defaults=Defaults(size=Size(1536, 1024), frames=121, fps=24.0),
    limits=Limits(
        size=SizeRule(multiple=64, smallest=64, largest=4096),
        frames=FrameRule(multiple=8, largest=1025),
        steps=(8, 8),
        guidance=(1.0, 1.0),
    ),
    params=_AUDIO,
)

BASE = derive(
    DISTILLED,
    model_id="ltx2/2.3-base",
    summary="LTX-2.3 video with sound in one stage with full guidance; not yet run with published weights",
    components=_one_stage(PUBLISHED, 1024, prompts=2),
    loops=_one_stage_loops(PUBLISHED, skip=28),
    programs={TaskType.T2V: one_stage(image=False), TaskType.I2V: one_stage(image=True)},
    recipe=RecipeSpec(assumes_loop=SEMANTICS, steps=30, guidance=3.0),
    parity=_parity("diffusers.LTX2Pipeline"),
    checkpoint=CheckpointManifest(repo="Lightricks/LTX-2.3"),
    defaults=Defaults(size=Size(768, 512), frames=121, fps=24.0, negative_prompt=_NEGATIVE),
    limits=Limits(
        size=SizeRule(multiple=32, smallest=32, largest=4096),
        frames=FrameRule(multiple=8, largest=1025),
        steps=(2, 1000),
    ),
    params={**_AUDIO, **_GUIDANCE},
)

_TINY_LATENT: Final = LatentSpec(channels=8, temporal=8, spatial=32)

TINY_DISTILLED = derive(
    DISTILLED,
    model_id="ltx2/tiny",
    summary="both stages at toy size; untrained, so its clips and sounds are noise",
    components=_two_stages(TINY, 64),
    loops=_two_stage_loops(TINY),
    recipe={"method": Method.UNTRAINED},
    checkpoint=None,
    latent=_TINY_LATENT,
    defaults=Defaults(size=Size(128, 128), frames=17, fps=24.0),
    limits={
        "size": SizeRule(multiple=64, smallest=64, largest=512),
        "frames": FrameRule(multiple=8, largest=121),
    },
)

TINY_BASE = derive(
    BASE,
    model_id="ltx2/tiny-base",
    summary="one guided stage at toy size; untrained, so its clips and sounds are noise",
    components=_one_stage(TINY, 64, prompts=2),
    loops=_one_stage_loops(TINY, skip=1),
    recipe={"method": Method.UNTRAINED, "steps": 8},
    checkpoint=None,
    latent=_TINY_LATENT,
    defaults=Defaults(size=Size(96, 64), frames=17, fps=24.0, negative_prompt=_NEGATIVE),
    limits={
        "size": SizeRule(multiple=32, smallest=32, largest=512),
        "frames": FrameRule(multiple=8, largest=121),
    },
)

CARDS = (TINY_DISTILLED, TINY_BASE, DISTILLED, BASE)
