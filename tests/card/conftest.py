"""A sound card of the shortest kind; nothing of it is ever loaded."""

from __future__ import annotations

import pytest

from fv_core.card import ComponentSpec, LoopSpec, ModelCard, ParamRule, RecipeSpec
from fv_core.program import text_to_video
from fv_core.request import TaskType

SEMANTICS = "flow.euler.cfg/v1"


@pytest.fixture
def card() -> ModelCard:
    return ModelCard(
        model_id="toy/tiny",
        family="toy",
        version="1",
        components={name: ComponentSpec(load=f"toy.components:{name}") for name in ("text", "dit", "vae")},
        loops={
            "denoise": LoopSpec(
                loop="fv_core.loop.flow_denoise:FlowDenoise", semantics=SEMANTICS, binds={"denoiser": "dit"}
            ),
            "decode": LoopSpec(
                loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"}
            ),
        },
        programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
        recipe=RecipeSpec(assumes_loop=SEMANTICS, steps=20, shift=3.0, guidance=5.0),
        params={"shift": ParamRule(doc="flow shift", lowest=0.1, highest=10.0)},
    )
