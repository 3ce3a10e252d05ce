"""A recipe that assumes a loop which the card does not declare."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import ComponentSpec, LoopSpec, ModelCard, RecipeSpec, TaskType, hookimpl, text_to_video

fv_api = 1
SEMANTICS = "flow.euler.cfg/v1"

CARD = ModelCard(
    model_id="undeclared-loop/tiny",
    family="undeclared-loop",
    version="1",
    components={
        part: ComponentSpec(load=f"fv_undeclared_loop.components:{part}") for part in ("text", "dit", "vae")
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
    recipe=RecipeSpec(assumes_loop="flow.dmd4/v1"),
)


@hookimpl
def fv_cards() -> Iterable[ModelCard]:
    """The cards of this plugin."""
    return [CARD]
