"""The card: what the model is made of, which loops its weights assume, and what a request may ask for."""

from __future__ import annotations

from fv_core.card import (
    ComponentSpec,
    Defaults,
    FrameRule,
    LatentSpec,
    Limits,
    LoopSpec,
    Method,
    ModelCard,
    ParitySpec,
    RecipeSpec,
    SizeRule,
)
from fv_core.program import text_to_video
from fv_core.request import Size, TaskType

TINY = ModelCard(
    model_id="echo/tiny",
    family="echo",
    version="1",
    summary="the model of the plugin guide; untrained, so its clips are noise",
    components={
        "text": ComponentSpec(
            load="fv_echo.components:TextEncoder", config={"width": 32, "length": 64}, parameters=10_272
        ),
        "denoiser": ComponentSpec(
            load="fv_echo.components:Denoiser",
            config={"channels": 4, "width": 32, "blocks": 2},
            parameters=69_700,
        ),
        "vae": ComponentSpec(
            load="fv_echo.components:Vae",
            config={"channels": 4, "width": 32},
            dtype="float32",  # whatever the run uses
            parameters=27_680,
        ),
    },
    loops={
        "denoise": LoopSpec(
            loop="fv_core.loop.flow_denoise:FlowDenoise",
            semantics="flow.euler.cfg/v1",
            binds={"denoiser": "denoiser"},
        ),
        "decode": LoopSpec(
            loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"}
        ),
    },
    programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
    recipe=RecipeSpec(
        assumes_loop="flow.euler.cfg/v1", method=Method.UNTRAINED, steps=8, shift=3.0, guidance=4.0
    ),
    parity=ParitySpec(
        reference="fv-echo", reference_version="0.1.0", runner="fv_echo.reference:record", rungs=("C0", "C1")
    ),
    latent=LatentSpec(channels=4, temporal=4, spatial=8),
    defaults=Defaults(size=Size(64, 64), frames=17, fps=8.0),
    limits=Limits(
        size=SizeRule(multiple=8, smallest=16, largest=256), frames=FrameRule(multiple=4, largest=65)
    ),
)
