"""Weights distilled to four steps on a card whose limits are fifty."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ComponentSpec, LoopSpec, ModelCard, RecipeSpec, TaskType, hookimpl, text_to_video
from fv_core.card import Limits

fv_api = 1
SEMANTICS = "flow.euler.cfg/v1"

CARD = ModelCard(
    model_id="few-steps/tiny",
    family="few-steps",
    version="1",
    components={
        part: ComponentSpec(load=f"fv_few_steps.components:{part}") for part in ("text", "dit", "vae")
    },
    loops={
        "denoise": LoopSpec(
            loop="fv_core.loop.flow_denoise:FlowDenoise", semantics=SEMANTICS, binds={"denoiser": "dit"}
        ),
        "decode": LoopSpec(
            loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"}
        ),
    },
    programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
    limits=Limits(steps=(50, 50)),
    recipe=RecipeSpec(assumes_loop=SEMANTICS, steps=4, steps_fixed=True),
)


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The cards of this plugin."""
    return [CARD]
