"""The cards: what is public of the two released models, and a tiny one of the same classes.

Sources of the figures, none of them checked on the files themselves: the defaults of diffusers 0.42.1
`Cosmos3OmniTransformer`, `Cosmos3AVAEAudioTokenizer` and `Cosmos3OmniPipeline.__call__`, which are those of Nano; the
page on Cosmos 3 in the documentation of diffusers (64 query and 8 KV heads of Super, shift 10 without Karras sigmas);
the published config of Wan 2.2 TI2V for the autoencoder. Of Super only the heads are documented by diffusers: width,
depth and feed-forward are those of the Qwen3-VL 32B that it is built on, the sizes of sound and action are taken from
Nano. A checkpoint's own config wins over all of them.
"""

from __future__ import annotations

from typing import Any

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
from fv_core.request import Size
from fv_cosmos3.embodiments import CANVASES, EMBODIMENTS, VIEWS
from fv_cosmos3.programs import programs

SEMANTICS = "flow.unipc2.joint/v1"
_QWEN_STOPS = (151645, 151643)  # <|im_end|>, <|endoftext|>
_TINY_STOPS = (400, 401)
_MEAN_48 = [-0.2289, -0.0052, -0.1323, -0.2339, -0.2799, 0.0174, 0.1838, 0.1557, -0.1382, 0.0542, 0.2813, 0.0891,
            0.1570, -0.0098, 0.0375, -0.1825, -0.2246, -0.1207, -0.0698, 0.5109, 0.2665, -0.2108, -0.2158, 0.2502,
            -0.2055, -0.0322, 0.1109, 0.1567, -0.0729, 0.0899, -0.2799, -0.1230, -0.0313, -0.1649, 0.0117, 0.0723,
            -0.2839, -0.2083, -0.0520, 0.3748, 0.0152, 0.1957, 0.1433, -0.2944, 0.3573, -0.0548, -0.1681,
            -0.0667]  # fmt: skip
_STD_48 = [0.4765, 1.0364, 0.4514, 1.1677, 0.5313, 0.4990, 0.4818, 0.5013, 0.8158, 1.0344, 0.5894, 1.0901,
           0.6885, 0.6165, 0.8454, 0.4978, 0.5759, 0.3523, 0.7135, 0.6804, 0.5833, 1.4146, 0.8986, 0.5659,
           0.7069, 0.5338, 0.4889, 0.4917, 0.4069, 0.4999, 0.6866, 0.4093, 0.5709, 0.6065, 0.6415, 0.4944,
           0.5726, 1.2042, 0.5458, 1.6887, 0.3971, 1.0600, 0.3943, 0.5537, 0.5444, 0.4089, 0.7468, 0.7744]  # fmt: skip
_MEAN_16 = [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
            0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921]  # fmt: skip
_STD_16 = [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
           3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160]  # fmt: skip
_NANO: dict[str, object] = {
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 36,
    "latent_channel": 48,
    "latent_patch_size": 2,
    "patch_latent_dim": 192,
    "rope_axes_dim": [24, 20, 20],
    "rope_theta": 5000000.0,
    "vocab_size": 151936,
    "sound_gen": True,
    "sound_dim": 64,
    "sound_latent_fps": 25.0,
    "action_gen": True,
    "action_dim": 64,
    "num_embodiment_domains": 32,
}
_VAE_48: dict[str, object] = {
    "base_dim": 160,
    "decoder_base_dim": 256,
    "z_dim": 48,
    "dim_mult": [1, 2, 4, 4],
    "num_res_blocks": 2,
    "temperal_downsample": [False, True, True],
    "is_residual": True,
    "in_channels": 12,
    "out_channels": 12,
    "patch_size": 2,
    "scale_factor_spatial": 16,
    "latents_mean": _MEAN_48,
    "latents_std": _STD_48,
}
_SOUND: dict[str, object] = {
    "sampling_rate": 48000,
    "vocoder_input_dim": 64,
    "dec_dim": 320,
    "dec_c_mults": [1, 2, 4, 8, 16],
    "dec_strides": [2, 4, 5, 6, 8],
    "dec_out_channels": 2,
}


def _components(
    parameters: tuple[int, int, int],
    transformer: dict[str, object],
    vae: dict[str, object],
    sound: dict[str, object],
) -> dict[str, ComponentSpec]:
    return {
        "transformer": ComponentSpec(
            load="fv_cosmos3.loading:transformer",
            activation="fv_cosmos3.memory:transformer",
            adapters=AdapterNames(prefixes=("transformer.",)),
            subfolders=("transformer", "text_tokenizer"),
            config=transformer,
            params={"compression": 4},
            parameters=parameters[0],
        ),
        "vae": ComponentSpec(
            load="fv_cosmos3.loading:vae",
            activation="fv_cosmos3.memory:vae",
            subfolders=("vae",),
            config=vae,
            dtype="float32",
            parameters=parameters[1],
        ),
        "sound": ComponentSpec(
            load="fv_cosmos3.loading:sound",
            activation="fv_cosmos3.memory:sound",
            subfolders=("sound_tokenizer",),
            config=sound,
            dtype="float32",
            parameters=parameters[2],
        ),
    }


def _loops(stop: tuple[int, ...], **facts: Any) -> dict[str, LoopSpec]:
    """`facts`: parameters of the joint denoise loop."""
    encode = {
        f"encode_{name}": LoopSpec(
            loop="fv_cosmos3.encode:VaeEncode",
            semantics="vae.encode/v1",
            binds={"vae": "vae"},
            params={"fit": fit},
        )
        for name, fit in (("image", "cover"), ("video", "stretch"), ("view", "canvas"))
    }
    return {
        "reason": LoopSpec(
            loop="fv_core.loop.ar_decode:ArDecode",
            semantics="ar.sample/v1",
            binds={"decoder": "transformer"},
            params={"stop": stop},
        ),
        "understand": LoopSpec(
            loop="fv_cosmos3.understand:Understand",
            semantics="ar.understand/v1",
            binds={"decoder": "transformer"},
        ),
        **encode,
        "denoise": LoopSpec(
            loop="fv_cosmos3.denoise:JointDenoise",
            semantics=SEMANTICS,
            binds={"denoiser": "transformer"},
            params=facts,
        ),
        "decode": LoopSpec(
            loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1", binds={"vae": "vae"}
        ),
    }


_PARAMS = {
    "shift": ParamRule(doc="flow shift: more of the steps at high noise", lowest=0.01, highest=100.0),
    "audio": ParamRule(doc="makes sound beside the video", default=False),
    "think": ParamRule(doc="lets the model rewrite the prompt before it generates", default=False),
    "max_tokens": ParamRule(doc="most tokens of a text", default=512, lowest=1, highest=32768, whole=True),
    "temperature": ParamRule(doc="0 writes the likeliest text", default=0.0, lowest=0.0, highest=10.0),
    "condition_frames": ParamRule(
        doc="latent frames that a video to go on from gives: the first holds one frame, each further one four",
        default=2,
        lowest=1,
        highest=1024,
        whole=True,
    ),
    "keep": ParamRule(
        doc="which end of a longer video to go on from", default="first", choices=("first", "last")
    ),
    "domain": ParamRule(
        doc="embodiment of the actions", default="bridge_orig_lerobot", choices=tuple(EMBODIMENTS)
    ),
    "view": ParamRule(doc="camera of the action modes", default="ego_view", choices=tuple(VIEWS)),
    "tier": ParamRule(doc="canvas of the action modes", default="480", choices=tuple(CANVASES)),
}

NANO = ModelCard(
    model_id="cosmos3/nano",
    family="cosmos3",
    version="1",
    summary="Cosmos 3 Nano: images, video with sound, answers and actions, 16 billion parameters, made for 1280x720",
    components=_components((15_173_669_120, 704_688_668, 473_097_282), _NANO, _VAE_48, _SOUND),
    loops=_loops(_QWEN_STOPS, sound_channels=64, sample_rate=48000, hop=1920, action_width=64),
    programs=programs(48000),
    recipe=RecipeSpec(assumes_loop=SEMANTICS, steps=35, shift=10.0, guidance=6.0),
    parity=ParitySpec(
        reference="diffusers.Cosmos3OmniPipeline",
        reference_version="0.42.1",
        runner="fv_cosmos3.reference:record",
        rungs=("C0", "C1"),
    ),
    checkpoint=CheckpointManifest(repo="nvidia/Cosmos3-Nano"),
    latent=LatentSpec(channels=48, temporal=4, spatial=16),
    caches="fv_cosmos3.memory:caches",
    defaults=Defaults(size=Size(1280, 720), frames=189, fps=24.0),
    limits=Limits(
        size=SizeRule(multiple=16, smallest=64, largest=2048), frames=FrameRule(multiple=4, largest=1021)
    ),
    params=_PARAMS,
)

SUPER = derive(
    NANO,
    model_id="cosmos3/super",
    summary="Cosmos 3 Super: the same at 65 billion parameters",
    components=_components(
        (64_019_736_832, 704_688_668, 473_097_282),
        {
            **_NANO,
            "hidden_size": 5120,
            "intermediate_size": 25600,
            "num_attention_heads": 64,
            "num_hidden_layers": 64,
        },
        _VAE_48,
        _SOUND,
    ),
    checkpoint=CheckpointManifest(repo="nvidia/Cosmos3-Super"),
)

_TINY_SOUND: dict[str, object] = {
    "sampling_rate": 16000,
    "input_channels": 1,
    "stereo": True,
    "normalize_volume": True,
    "enc_dim": 4,
    "enc_num_blocks": 1,
    "enc_n_fft": 8,
    "enc_hop_length": 2,
    "enc_latent_dim": 8,
    "enc_c_mults": [1],
    "enc_strides": [2],
    "vocoder_input_dim": 4,
    "dec_dim": 4,
    "dec_c_mults": [1, 1, 1],
    "dec_strides": [8, 8, 10],
    "dec_out_channels": 2,
}

TINY = derive(
    NANO,
    model_id="cosmos3/tiny",
    summary="the same classes at toy size; untrained, so what it makes is noise",
    components=_components(
        (103_748, 21_819, 2_506),
        {
            **_NANO,
            "head_dim": 16,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "num_hidden_layers": 2,
            "latent_channel": 16,
            "patch_latent_dim": 64,
            "rope_axes_dim": [4, 2, 2],
            "vocab_size": 416,
            "sound_dim": 4,
            "action_dim": 12,
        },
        {
            "base_dim": 4,
            "z_dim": 16,
            "dim_mult": [1, 1, 1, 1],
            "num_res_blocks": 1,
            "temperal_downsample": [False, True, True],
            "latents_mean": _MEAN_16,
            "latents_std": _STD_16,
        },
        _TINY_SOUND,
    ),
    loops=_loops(_TINY_STOPS, sound_channels=4, sample_rate=16000, hop=640, action_width=12),
    programs=programs(16000),
    recipe={"method": Method.UNTRAINED, "steps": 6},
    checkpoint=None,
    latent=LatentSpec(channels=16, temporal=4, spatial=8),
    defaults=Defaults(size=Size(64, 64), frames=17, fps=8.0),
    limits=Limits(
        size=SizeRule(multiple=8, smallest=16, largest=512), frames=FrameRule(multiple=4, largest=125)
    ),
    params={
        **_PARAMS,
        "max_tokens": ParamRule(doc="most tokens of a text", default=24, lowest=1, highest=256, whole=True),
        "tier": ParamRule(doc="canvas of the action modes", default="256", choices=tuple(CANVASES)),
    },
)

CARDS = (TINY, NANO, SUPER)
