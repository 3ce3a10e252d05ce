"""The cards. Sizes of the real model: the published configs, and what the published code sets beside them."""

from __future__ import annotations

from fv_bagel.programs import answer, edit, text_to_image
from fv_core.card import (
    AdapterNames,
    CheckpointManifest,
    ComponentSpec,
    Defaults,
    FrameRule,
    Limits,
    LoopSpec,
    Method,
    ModelCard,
    ParamRule,
    ParitySpec,
    Precision,
    RecipeSpec,
    SizeRule,
    derive,
)
from fv_core.request import Size, TaskType

SEMANTICS = "flow.euler.contexts/v1"
_LATENT_PATCH = 2
_FILE = ("ema.safetensors",)


def _components(
    parameters: tuple[int, int, int],
    llm: dict[str, object],
    vit: dict[str, object],
    vae: dict[str, object],
    *,
    latent_side: int,
    smallest: int,
) -> dict[str, ComponentSpec]:
    patches = int(str(vit["image_size"])) // int(str(vit["patch_size"]))
    return {
        "model": ComponentSpec(
            load="fv_bagel.loading:mixture",
            files=_FILE,
            config=llm,
            params={"latent_patch": _LATENT_PATCH, "latent_channels": 16, "latent_side": latent_side},
            parameters=parameters[0],
            activation="fv_bagel.memory:mixture",
            adapters=AdapterNames(),  # it has one release, whose names the module keeps
        ),
        "vision": ComponentSpec(
            load="fv_bagel.loading:vision",
            files=_FILE,
            config=vit,
            params={"side": patches, "width": int(str(llm["hidden_size"])), "smallest": smallest},
            parameters=parameters[1],
            activation="fv_bagel.memory:vision",
            adapters=AdapterNames(),
        ),
        "vae": ComponentSpec(
            load="fv_bagel.loading:vae",
            files=("ae.safetensors",),
            config=vae,
            dtype="float32",
            parameters=parameters[2],
            activation="fv_bagel.memory:vae",
        ),
    }


def _loops(end: int) -> dict[str, LoopSpec]:
    """`end` is the id of the token that ends a text."""
    model, vae = {"model": "model"}, {"vae": "vae"}
    context = "fv_bagel.context:BuildContext"
    return {
        "context": LoopSpec(
            loop=context, semantics="context.blocks/v1", binds=model, params={"guided": True}
        ),
        "question": LoopSpec(
            loop=context, semantics="context.blocks/v1", binds=model, params={"guided": False}
        ),
        "encode": LoopSpec(loop="fv_bagel.encode:EncodeImage", semantics="vae.encode.sample/v1", binds=vae),
        "write": LoopSpec(
            loop="fv_core.loop.ar_decode:ArDecode",
            semantics="ar.sample/v1",
            binds={"decoder": "model"},
            params={"stop": (end,)},
        ),
        "denoise": LoopSpec(
            loop="fv_bagel.denoise:DenoiseImage",
            semantics=SEMANTICS,
            binds=model,
            params={"patch": _LATENT_PATCH},
        ),
        "decode": LoopSpec(loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds=vae),
    }


def _params(max_tokens: int) -> dict[str, ParamRule]:
    return {
        "think": ParamRule(
            doc="write a thought first, and make the image or the answer with it", default=False
        ),
        "shift": ParamRule(doc="flow shift: more of the steps at high noise", lowest=0.01, highest=100.0),
        "image_guidance": ParamRule(
            doc="guidance by the image given, or by the thought; 1 is off, and it needs guidance above 1",
            default=1.5,
            lowest=1.0,
            highest=100.0,
        ),
        "interval_low": ParamRule(doc="time from which on, going down from 1, guidance ends", default=0.4),
        "interval_high": ParamRule(doc="time at which guidance begins", default=1.0),
        "renorm": ParamRule(
            doc="what is brought back to its length before guidance: the whole image, each token, or each token "
            "after the guidance by text alone",
            default="global",
            choices=("global", "channel", "text_channel"),
        ),
        "renorm_min": ParamRule(doc="the least factor of that; 1 leaves lengths as they come", default=0.0),
        "max_tokens": ParamRule(
            doc="the most tokens of a thought or an answer",
            default=max_tokens,
            lowest=1,
            highest=4096,
            whole=True,
        ),
        "temperature": ParamRule(
            doc="of the words of a thought or an answer; 0 takes the likeliest", default=0.0, highest=2.0
        ),
    }


def _vae(base: int, multiples: tuple[int, ...], layers: int) -> dict[str, object]:
    return {
        "in_channels": 3,
        "out_channels": 3,
        "down_block_types": ["DownEncoderBlock2D"] * len(multiples),
        "up_block_types": ["UpDecoderBlock2D"] * len(multiples),
        "block_out_channels": [base * multiple for multiple in multiples],
        "layers_per_block": layers,
        "latent_channels": 16,
        "norm_num_groups": 32,
        "use_quant_conv": False,
        "use_post_quant_conv": False,
        "scaling_factor": 0.3611,
        "shift_factor": 0.1159,
    }


_QWEN2_7B: dict[str, object] = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "hidden_act": "silu",
}
_SIGLIP_SO400M: dict[str, object] = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,  # the published config counts one that the model does not have
    "num_attention_heads": 16,
    "image_size": 980,
    "patch_size": 14,
    "num_channels": 3,
    "hidden_act": "gelu_pytorch_tanh",
    "layer_norm_eps": 1e-6,
}

MOT_7B = ModelCard(
    model_id="bagel/7b-mot",
    family="bagel",
    version="1",
    summary="BAGEL, two experts of 7 billion parameters: makes, edits and describes images of 512 to 1024 pixels",
    components=_components(
        (14_170_164_800, 437_095_328, 83_819_683),
        _QWEN2_7B,
        _SIGLIP_SO400M,
        _vae(128, (1, 2, 4, 4), 2),
        latent_side=64,
        smallest=224,
    ),
    loops=_loops(151645),
    programs={TaskType.T2I: text_to_image(), TaskType.EDIT: edit(), TaskType.QA: answer()},
    recipe=RecipeSpec(assumes_loop=SEMANTICS, steps=49, shift=3.0, guidance=4.0, precision="bfloat16"),
    parity=ParitySpec(
        reference="fv-bagel.reference",
        reference_version="0.1.0",
        transcribes="ByteDance-Seed/Bagel@056b5fd51a88c1eb4547318609e25d40080fcf87",
        runner="fv_bagel.reference:record",
        rungs=("C0", "C1"),
    ),
    checkpoint=CheckpointManifest(repo="ByteDance-Seed/BAGEL-7B-MoT"),
    caches="fv_bagel.memory:caches",
    defaults=Defaults(size=Size(1024, 1024), frames=1),
    limits=Limits(size=SizeRule(multiple=16, smallest=512, largest=1024), frames=FrameRule(largest=1)),
    precision=Precision(legal=("float32", "bfloat16")),
    params=_params(1000),
)

TINY = derive(
    MOT_7B,
    model_id="bagel/tiny",
    summary="the same classes at toy size; untrained, so its images and words are noise",
    components=_components(
        (79_712, 31_664, 377_827),
        {
            **_QWEN2_7B,
            "vocab_size": 416,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "max_position_embeddings": 4096,
        },
        {
            **_SIGLIP_SO400M,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 98,
        },
        _vae(32, (1, 1, 1, 1), 1),
        latent_side=8,
        smallest=14,
    ),
    loops=_loops(402),
    recipe={"method": Method.UNTRAINED, "steps": 8, "precision": ""},
    checkpoint=None,
    defaults=Defaults(size=Size(64, 64), frames=1),
    limits=Limits(size=SizeRule(multiple=16, smallest=16, largest=128), frames=FrameRule(largest=1)),
    params=_params(16),
)

CARDS = (TINY, MOT_7B)
