"""The cards. Sizes of the real model: the published configs of Wan 2.1 1.3B, whose architecture it keeps."""

from __future__ import annotations

from typing import Final

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
    ParitySpec,
    RecipeSpec,
    SizeRule,
    derive,
)
from fv_core.request import Modality, Size, TaskType
from fv_wan_causal.official import BLOCK_NAMES, NAMES
from fv_wan_causal.programs import from_pixels, from_text

SEMANTICS: Final = "causal.renoise/v1"
CHUNK: Final = 3
"""Latent frames of a chunk."""
WINDOW: Final = 21
"""Latent frames of the longest window, which is also the longest clip that the weights were made for."""

# 1000, 750, 500 and 250 of the table with shift 5, in the fp32 that the reference computes them in.
_SIGMAS: Final = (1.0, 0.9375, 0.8333333134651184, 0.625)

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
    "tie_word_embeddings": False,
}
_DIT: dict[str, object] = {
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


def _components(
    parameters: tuple[int, int, int],
    text: dict[str, object],
    denoiser: dict[str, object],
    vae: dict[str, object],
) -> dict[str, ComponentSpec]:
    return {
        "text": ComponentSpec(
            load="fv_wan_causal.loading:text_encoder",
            subfolders=("text_encoder", "tokenizer"),
            config=text,
            params={"max_length": 512},
            parameters=parameters[0],
            activation="fv_wan_causal.memory:text_encoder",
            adapters=AdapterNames(prefixes=("text_encoder.",)),
        ),
        "transformer": ComponentSpec(
            load="fv_wan_causal.loading:denoiser",
            subfolders=("transformer",),
            config=denoiser,
            parameters=parameters[1],
            activation="fv_wan_causal.memory:denoiser",
            convert="fv_wan_causal.convert:transformer",
            adapters=AdapterNames(
                prefixes=("transformer.", "diffusion_model.", "lora_unet_"),
                original={ours: theirs for theirs, ours in (NAMES | BLOCK_NAMES).items()},
            ),
        ),
        "vae": ComponentSpec(
            load="fv_wan_causal.loading:vae",
            subfolders=("vae",),
            config=vae,
            dtype="float32",
            parameters=parameters[2],
            activation="fv_wan_causal.memory:vae",
        ),
    }


def rollout(*, first_frame: bool, window: int | None, sink: int) -> LoopSpec:
    """The loop that makes chunks; see `fv_core.loop.chunk_rollout.ChunkParams`."""
    return LoopSpec(
        loop="fv_core.loop.chunk_rollout:ChunkRollout",
        semantics=SEMANTICS,
        binds={"denoiser": "transformer"},
        params={
            "chunk": CHUNK,
            "first_frame": first_frame,
            "window": window,
            "sink": sink,
            "trained": WINDOW,
        },
    )


def loops(window: int | None, sink: int) -> dict[str, LoopSpec]:
    """The loops of a card: `rollout`, `rollout_frame` with a first chunk of one frame, and `decode`."""
    return {
        "rollout": rollout(first_frame=False, window=window, sink=sink),
        "rollout_frame": rollout(first_frame=True, window=window, sink=sink),
        "decode": LoopSpec(
            loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"}
        ),
    }


SF_1_3B = ModelCard(
    model_id="wan-causal/sf-1.3b",
    family="wan-causal",
    version="1",
    summary="Self-Forcing of Wan 2.1 1.3B: streams 832x480 in chunks of 12 frames, 4 steps each",
    components=_components((5_680_910_336, 1_418_996_800, 126_892_531), _UMT5_XXL, _DIT, _VAE),
    loops=loops(WINDOW, 0),
    programs={
        TaskType.T2V: from_text("rollout"),
        TaskType.I2V: from_pixels("rollout_frame", Modality.IMAGE),
        TaskType.V2V: from_pixels("rollout", Modality.VIDEO),
    },
    recipe=RecipeSpec(
        assumes_loop=SEMANTICS, method=Method.DISTIL, steps=4, steps_fixed=True, sigmas=_SIGMAS
    ),
    parity=ParitySpec(
        reference="fv-wan-causal.reference",
        reference_version="0.1.0",
        transcribes="guandeh17/Self-Forcing@33593df3e81fa3ec10239271dd2c100facac6de1",
        runner="fv_wan_causal.reference:record",
        probes="fv_wan_causal.probes:probes",
        rungs=("C0", "C1"),
    ),
    checkpoint=CheckpointManifest(repo="wlsaidhi/SFWan2.1-T2V-1.3B-Diffusers"),
    caches="fv_wan_causal.memory:caches",
    defaults=Defaults(size=Size(832, 480), frames=81, fps=16.0),
    limits=Limits(
        size=SizeRule(multiple=16, smallest=16, largest=2048),
        frames=FrameRule(multiple=4, largest=4093),
        steps=(4, 4),
        guidance=(1.0, 1.0),
    ),
)

TINY = derive(
    SF_1_3B,
    model_id="wan-causal/tiny",
    summary="the same classes at toy size, with a window of 7 latent frames; untrained, so its clips are noise",
    components=_components(
        (25_344, 100_128, 21_819),
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
            "tie_word_embeddings": False,
        },
        {
            **_DIT,
            "num_attention_heads": 2,
            "attention_head_dim": 16,
            "text_dim": 32,
            "ffn_dim": 64,
            "num_layers": 6,
        },
        {**_VAE, "base_dim": 4, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1},
    ),
    loops=loops(7, 1),
    recipe={"method": Method.UNTRAINED},
    checkpoint=None,
    defaults=Defaults(size=Size(64, 64), frames=45, fps=8.0),
    limits={
        "size": SizeRule(multiple=16, smallest=16, largest=512),
        "frames": FrameRule(multiple=4, largest=249),
    },
)

CARDS = (TINY, SF_1_3B)
