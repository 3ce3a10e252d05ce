"""The arguments of the classes: LTX-2.3 as published (diffusers layout), and the same classes at toy size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Config = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One component: the arguments of its class, and the parameters it then has."""

    config: Config
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """All components of one size of the model."""

    text: Architecture
    connectors: Architecture
    transformer: Architecture
    vae: Architecture
    upsampler: Architecture
    audio_vae: Architecture
    vocoder: Architecture


_GEMMA_3_12B: Config = {
    "vocab_size": 262208,
    "hidden_size": 3840,
    "intermediate_size": 15360,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "sliding_window": 1024,
    "query_pre_attn_scalar": 256,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}

_CONNECTORS: Config = {
    "caption_channels": 3840,
    "text_proj_in_factor": 49,
    "video_connector_num_attention_heads": 32,
    "video_connector_attention_head_dim": 128,
    "video_connector_num_layers": 8,
    "video_connector_num_learnable_registers": 128,
    "video_gated_attn": True,
    "audio_connector_num_attention_heads": 32,
    "audio_connector_attention_head_dim": 64,
    "audio_connector_num_layers": 8,
    "audio_connector_num_learnable_registers": 128,
    "audio_gated_attn": True,
    "connector_rope_base_seq_len": 4096,
    "rope_theta": 10000.0,
    "rope_double_precision": True,
    "causal_temporal_positioning": False,
    "rope_type": "split",
    "per_modality_projections": True,
    "video_hidden_dim": 4096,
    "audio_hidden_dim": 2048,
    "proj_bias": True,
}

_TRANSFORMER: Config = {
    "in_channels": 128,
    "out_channels": 128,
    "patch_size": 1,
    "patch_size_t": 1,
    "num_attention_heads": 32,
    "attention_head_dim": 128,
    "cross_attention_dim": 4096,
    "audio_in_channels": 128,
    "audio_out_channels": 128,
    "audio_num_attention_heads": 32,
    "audio_attention_head_dim": 64,
    "audio_cross_attention_dim": 2048,
    "num_layers": 48,
    "qk_norm": "rms_norm_across_heads",
    "caption_channels": 3840,
    "rope_double_precision": True,
    "rope_type": "split",
    "gated_attn": True,
    "cross_attn_mod": True,
    "audio_gated_attn": True,
    "audio_cross_attn_mod": True,
    "use_prompt_embeddings": False,
    "perturbed_attn": True,
}

_VAE: Config = {
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 128,
    "block_out_channels": [256, 512, 1024, 1024],
    "decoder_block_out_channels": [256, 512, 512, 1024],
    "layers_per_block": [4, 6, 4, 2, 2],
    "decoder_layers_per_block": [4, 6, 4, 2, 2],
    "spatio_temporal_scaling": [True, True, True, True],
    "decoder_spatio_temporal_scaling": [True, True, True, True],
    "decoder_inject_noise": [False, False, False, False, False],
    "downsample_type": ["spatial", "temporal", "spatiotemporal", "spatiotemporal"],
    "upsample_type": ["spatiotemporal", "spatiotemporal", "temporal", "spatial"],
    "upsample_residual": [False, False, False, False],
    "upsample_factor": [2, 2, 1, 2],
    "timestep_conditioning": False,
    "patch_size": 4,
    "patch_size_t": 1,
    "encoder_causal": True,
    "decoder_causal": False,
    "encoder_spatial_padding_mode": "zeros",
    "decoder_spatial_padding_mode": "zeros",
    "spatial_compression_ratio": 32,
    "temporal_compression_ratio": 8,
}

_UPSAMPLER: Config = {
    "in_channels": 128,
    "mid_channels": 1024,
    "num_blocks_per_stage": 4,
    "dims": 3,
    "spatial_upsample": True,
    "temporal_upsample": False,
    "rational_spatial_scale": 2.0,
    "use_rational_resampler": False,
}

_AUDIO_VAE: Config = {
    "base_channels": 128,
    "output_channels": 2,
    "ch_mult": [1, 2, 4],
    "num_res_blocks": 2,
    "attn_resolutions": None,
    "in_channels": 2,
    "resolution": 256,
    "latent_channels": 8,
    "norm_type": "pixel",
    "causality_axis": "height",
    "dropout": 0.0,
    "mid_block_add_attention": False,
    "sample_rate": 16000,
    "mel_hop_length": 160,
    "is_causal": True,
    "mel_bins": 64,
    "double_z": True,
}

_VOCODER: Config = {
    "in_channels": 128,
    "hidden_channels": 1536,
    "out_channels": 2,
    "upsample_kernel_sizes": [11, 4, 4, 4, 4, 4],
    "upsample_factors": [5, 2, 2, 2, 2, 2],
    "resnet_kernel_sizes": [3, 7, 11],
    "resnet_dilations": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
    "bwe_in_channels": 128,
    "bwe_hidden_channels": 512,
    "bwe_out_channels": 2,
    "bwe_upsample_kernel_sizes": [12, 11, 4, 4, 4],
    "bwe_upsample_factors": [6, 5, 2, 2, 2],
    "bwe_resnet_kernel_sizes": [3, 7, 11],
    "bwe_resnet_dilations": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
    "num_mel_channels": 64,
}

_TINY_GEMMA: Config = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "sliding_window": 64,
    "query_pre_attn_scalar": 16,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
}

_TINY_CONNECTORS: Config = {
    **_CONNECTORS,
    "caption_channels": 32,
    "text_proj_in_factor": 3,
    "video_connector_num_attention_heads": 2,
    "video_connector_attention_head_dim": 16,
    "video_connector_num_layers": 1,
    "video_connector_num_learnable_registers": 8,
    "audio_connector_num_attention_heads": 2,
    "audio_connector_attention_head_dim": 16,
    "audio_connector_num_layers": 1,
    "audio_connector_num_learnable_registers": 8,
    "connector_rope_base_seq_len": 32,
    "video_hidden_dim": 32,
    "audio_hidden_dim": 32,
}

_TINY_TRANSFORMER: Config = {
    **_TRANSFORMER,
    "in_channels": 8,
    "out_channels": 8,
    "num_attention_heads": 2,
    "attention_head_dim": 16,
    "cross_attention_dim": 32,
    "audio_in_channels": 8,
    "audio_out_channels": 8,
    "audio_num_attention_heads": 2,
    "audio_attention_head_dim": 16,
    "audio_cross_attention_dim": 32,
    "num_layers": 2,
    "caption_channels": 32,
}

_TINY_VAE: Config = {
    **_VAE,
    "latent_channels": 8,
    "block_out_channels": [8, 8, 16, 16],
    "decoder_block_out_channels": [8, 16, 16, 32],
    "layers_per_block": [1, 1, 1, 1, 1],
    "decoder_layers_per_block": [1, 1, 1, 1, 1],
}

_TINY_UPSAMPLER: Config = {**_UPSAMPLER, "in_channels": 8, "mid_channels": 64, "num_blocks_per_stage": 1}

_TINY_AUDIO_VAE: Config = {
    **_AUDIO_VAE,
    "base_channels": 8,
    "ch_mult": [1, 1, 1],
    "num_res_blocks": 1,
    "resolution": 32,
    "latent_channels": 4,
    "mel_bins": 8,
}

_TINY_VOCODER: Config = {
    **_VOCODER,
    "in_channels": 16,
    "hidden_channels": 64,
    "resnet_kernel_sizes": [3],
    "resnet_dilations": [[1, 3, 5]],
    "bwe_in_channels": 16,
    "bwe_hidden_channels": 32,
    "bwe_resnet_kernel_sizes": [3],
    "bwe_resnet_dilations": [[1, 3, 5]],
    "num_mel_channels": 8,
}

PUBLISHED: Final = Family(
    text=Architecture(config=_GEMMA_3_12B, parameters=11_766_034_176),
    connectors=Architecture(config=_CONNECTORS, parameters=3_172_227_584),
    transformer=Architecture(config=_TRANSFORMER, parameters=18_988_838_144),
    vae=Architecture(config=_VAE, parameters=726_105_969),
    upsampler=Architecture(config=_UPSAMPLER, parameters=497_867_904),
    audio_vae=Architecture(config=_AUDIO_VAE, parameters=53_248_146),
    vocoder=Architecture(config=_VOCODER, parameters=128_537_448),
)
TINY: Final = Family(
    text=Architecture(config=_TINY_GEMMA, parameters=28_512),
    connectors=Architecture(config=_TINY_CONNECTORS, parameters=32_132),
    transformer=Architecture(config=_TINY_TRANSFORMER, parameters=196_968),
    vae=Architecture(config=_TINY_VAE, parameters=331_139),
    upsampler=Architecture(config=_TINY_UPSAMPLER, parameters=618_696),
    audio_vae=Architecture(config=_TINY_AUDIO_VAE, parameters=18_698),
    vocoder=Architecture(config=_TINY_VOCODER, parameters=76_350),
)
