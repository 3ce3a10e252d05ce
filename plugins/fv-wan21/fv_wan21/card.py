"""The cards. Sizes of the real models: the published configs of the two repositories, diffusers layout."""

from __future__ import annotations

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
from fv_core.program import text_to_video
from fv_core.request import Size, TaskType

SEMANTICS = "flow.unipc2.cfg/v1"


_DIT_NAMES = AdapterNames(
    prefixes=("transformer.", "diffusion_model.", "lora_unet_"),
    original={
        **{
            f"{ours}.{own}": f"{theirs}.{original}"
            for ours, theirs in (("attn1", "self_attn"), ("attn2", "cross_attn"))
            for own, original in (("to_q", "q"), ("to_k", "k"), ("to_v", "v"), ("to_out.0", "o"))
        },
        "ffn.net.0.proj": "ffn.0",
        "ffn.net.2": "ffn.2",
        "condition_embedder.text_embedder.linear_1": "text_embedding.0",
        "condition_embedder.text_embedder.linear_2": "text_embedding.2",
        "condition_embedder.time_embedder.linear_1": "time_embedding.0",
        "condition_embedder.time_embedder.linear_2": "time_embedding.2",
        "condition_embedder.time_proj": "time_projection.1",
        "proj_out": "head.head",
    },
)
"""Left diffusers' names, right those of the official release, which ComfyUI and kohya keep."""

_TEXT_NAMES = AdapterNames(prefixes=("text_encoder.",))


def _components(
    parameters: tuple[int, int, int],
    text: dict[str, object],
    denoiser: dict[str, object],
    vae: dict[str, object],
    *,
    text_params: dict[str, int | str] | None = None,
) -> dict[str, ComponentSpec]:
    return {
        "text": ComponentSpec(
            load="fv_wan21.loading:text_encoder",
            subfolders=("text_encoder", "tokenizer"),
            config=text,
            params={"max_length": 512} if text_params is None else text_params,
            parameters=parameters[0],
            activation="fv_wan21.memory:text_encoder",
            adapters=_TEXT_NAMES,
        ),
        "transformer": ComponentSpec(
            load="fv_wan21.loading:denoiser",
            subfolders=("transformer",),
            config=denoiser,
            parameters=parameters[1],
            activation="fv_wan21.memory:denoiser",
            adapters=_DIT_NAMES,
        ),
        "vae": ComponentSpec(
            load="fv_wan21.loading:vae",
            subfolders=("vae",),
            config=vae,
            dtype="float32",
            parameters=parameters[2],
            activation="fv_wan21.memory:vae",
        ),
    }


_LATENTS_MEAN = [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
                 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921]  # fmt: skip
_LATENTS_STD = [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160]  # fmt: skip
_UMT5_XXL: dict[str, object] = {
    "vocab_size": 256384,
    "d_model": 4096,
    "d_kv": 64,
    "d_ff": 10240,
    "num_layers": 24,
    "num_heads": 64,
    "relative_attention_num_buckets": 32,
    "feed_forward_proj": "gated-gelu",
}
_DIT_1_3B: dict[str, object] = {
    "patch_size": [1, 2, 2],
    "num_attention_heads": 12,
    "attention_head_dim": 128,
    "in_channels": 16,
    "out_channels": 16,
    "text_dim": 4096,
    "freq_dim": 256,
    "ffn_dim": 8960,
    "num_layers": 30,
    "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads",
    "rope_max_seq_len": 1024,
}
_VAE: dict[str, object] = {
    "base_dim": 96,
    "z_dim": 16,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
    "temperal_downsample": [False, True, True],
    "latents_mean": _LATENTS_MEAN,
    "latents_std": _LATENTS_STD,
}

T2V_1_3B = ModelCard(
    model_id="wan21/t2v-1.3b",
    family="wan21",
    version="1",
    summary="Wan 2.1 text to video, 1.3 billion parameters, made for 832x480",
    components=_components((5_680_910_336, 1_418_996_800, 126_892_531), _UMT5_XXL, _DIT_1_3B, _VAE),
    loops={
        "denoise": LoopSpec(
            loop="fv_core.loop.flow_denoise:FlowDenoise",
            semantics=SEMANTICS,
            binds={"denoiser": "transformer"},
        ),
        "decode": LoopSpec(
            loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"}
        ),
    },
    programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
    recipe=RecipeSpec(assumes_loop=SEMANTICS, steps=50, shift=3.0, guidance=5.0),
    parity=ParitySpec(
        reference="diffusers.WanPipeline",
        reference_version="0.42.1",
        runner="fv_wan21.reference:record",
        rungs=("C0", "C1"),
    ),
    checkpoint=CheckpointManifest(repo="Wan-AI/Wan2.1-T2V-1.3B-Diffusers"),
    caches="fv_wan21.memory:caches",
    defaults=Defaults(size=Size(832, 480), frames=81, fps=16.0),
    limits=Limits(
        size=SizeRule(multiple=16, smallest=16, largest=2048), frames=FrameRule(multiple=4, largest=4093)
    ),
    params={
        "shift": ParamRule(doc="flow shift: more of the steps at high noise", lowest=0.01, highest=100.0)
    },
)

T2V_14B = derive(
    T2V_1_3B,
    model_id="wan21/t2v-14b",
    summary="Wan 2.1 text to video, 14 billion parameters, made for 832x480 and 1280x720",
    components=_components(
        (5_680_910_336, 14_288_491_584, 126_892_531),
        _UMT5_XXL,
        {**_DIT_1_3B, "num_attention_heads": 40, "ffn_dim": 13824, "num_layers": 40},
        _VAE,
    ),
    recipe={"shift": 5.0},
    checkpoint=CheckpointManifest(repo="Wan-AI/Wan2.1-T2V-14B-Diffusers"),
)

_DRAWS = (
    "a circle (disc, ball), square (box) or triangle (wedge), in red, green, blue, yellow, purple (violet), orange, "
    "cyan (turquoise) or pink, moving right, left, up or down (rightwards, ...), on a black or white background"
)

MICRO = derive(
    T2V_1_3B,
    model_id="wan21/micro",
    summary="the same classes at toy size; untrained, so its clips are noise",
    components=_components(
        (25_344, 48_032, 21_819),
        {
            "vocab_size": 145,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "relative_attention_num_buckets": 8,
            "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu",
        },
        {
            **_DIT_1_3B,
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "text_dim": 32,
            "ffn_dim": 64,
            "num_layers": 2,
            "rope_max_seq_len": 32,
        },
        {**_VAE, "base_dim": 4, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1},
    ),
    recipe={"method": Method.UNTRAINED, "steps": 12},
    checkpoint=None,
    defaults=Defaults(size=Size(64, 64), frames=17, fps=8.0),
    limits=Limits(
        size=SizeRule(multiple=16, smallest=16, largest=512), frames=FrameRule(multiple=4, largest=125)
    ),
)

TINY = derive(
    MICRO,
    model_id="wan21/tiny",
    summary="a small trained model of the same classes: plain shapes that move, 64x64",
    components=_components(
        (188_416, 2_420_184, 1_999_560),
        {
            "vocab_size": 37,
            "d_model": 96,
            "d_kv": 24,
            "d_ff": 192,
            "num_layers": 2,
            "num_heads": 4,
            "relative_attention_num_buckets": 8,
            "dropout_rate": 0.0,
            "feed_forward_proj": "gated-gelu",
        },
        {
            **_DIT_1_3B,
            "patch_size": [1, 1, 1],
            "num_attention_heads": 4,
            "attention_head_dim": 48,
            "in_channels": 24,
            "out_channels": 24,
            "text_dim": 96,
            "freq_dim": 64,
            "ffn_dim": 576,
            "num_layers": 4,
            "rope_max_seq_len": 32,
        },
        {
            "base_dim": 16,
            "decoder_base_dim": 32,
            "z_dim": 24,
            "dim_mult": [1, 2, 2],
            "num_res_blocks": 1,
            "temperal_downsample": [True, True],
            "is_residual": True,
            "patch_size": 4,
            "in_channels": 48,
            "out_channels": 48,
            "scale_factor_temporal": 4,
            "scale_factor_spatial": 16,
            "latents_mean": [0.0] * 24,
            "latents_std": [1.0] * 24,
        },
        text_params={"max_length": 12, "assets": "tiny", "draws": _DRAWS},
    ),
    recipe={"method": Method.PRETRAIN, "steps": 12, "guidance": 1.5},
    weights="fv_wan21:assets/tiny",
    latent=LatentSpec(channels=24, temporal=4, spatial=16),
    defaults=Defaults(size=Size(64, 64), frames=9, fps=8.0),
    limits=Limits(
        size=SizeRule(multiple=16, smallest=16, largest=128), frames=FrameRule(multiple=4, largest=33)
    ),
)

CARDS = (TINY, MICRO, T2V_1_3B, T2V_14B)
