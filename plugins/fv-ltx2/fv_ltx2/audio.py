"""The audio side of decoding: latent to mel spectrogram, mel spectrogram to waveform, one sample per forward.

Reference: diffusers 0.42.1, the end of `LTX2Pipeline.__call__` over `AutoencoderKLLTX2Audio` and
`LTX2VocoderWithBWE`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from diffusers import AutoencoderKLLTX2Audio
from diffusers.pipelines.ltx2.vocoder import LTX2VocoderWithBWE

from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import tensor
from fv_ltx2.packing import unpack_audio


class AudioVae:
    """Op `decode`: row latent fp32 [L, C * M], normalised tokens; output mel [2, 4L - 3, mel bins]."""

    def __init__(self, module: AutoencoderKLLTX2Audio) -> None:
        self.module = module
        self._dtype = module.dtype

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        return [self._decode(call) for call in calls]

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        tokens = tensor(call, "latent")
        tokens = tokens * self.module.latents_std.to(tokens) + self.module.latents_mean.to(tokens)
        latent = unpack_audio(tokens, self.module.config.latent_channels)
        mel = self.module.decode(latent.unsqueeze(0).to(self._dtype), return_dict=False)[0]
        return ComponentOutput(output=CallOutput(tensors={"mel": mel[0]}))


class Vocoder:
    """Op `vocode`: row mel [2, T, mel bins]; output audio fp32 [2, samples] in [-1, 1] at the module's rate."""

    def __init__(self, module: LTX2VocoderWithBWE) -> None:
        self.module = module

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        return [self._vocode(call) for call in calls]

    def _vocode(self, call: ResolvedCall) -> ComponentOutput:
        audio = self.module(tensor(call, "mel").unsqueeze(0))
        return ComponentOutput(output=CallOutput(tensors={"audio": audio[0].float().cpu()}))
