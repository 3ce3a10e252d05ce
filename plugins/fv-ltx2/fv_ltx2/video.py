"""The video autoencoder and the latent upsampler, one sample per forward: batching them changes bits.

References: diffusers 0.42.1, `AutoencoderKLLTX2Video` as `LTX2Pipeline` and `LTX2ImageToVideoPipeline` call it, and
`LTX2LatentUpsamplePipeline`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import PIL.Image
import torch
from diffusers import AutoencoderKLLTX2Video
from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
from diffusers.pipelines.ltx2.utils import apply_image_conditioning_crf
from diffusers.video_processor import VideoProcessor
from torch import Tensor

from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import tensor, whole


class Vae:
    """Ops `decode` and `encode`.

    decode: row latent fp32 [C, F, H, W], normalised; output frames fp32 [f, height, width, 3] in [0, 1] on the CPU.
    The decoder looks both ways in time, so it takes the clip whole.
    encode: rows image uint8 [h, w, 3], width and height of the clip, static divisor; output latent fp32 [C, 1, H, W]
    of a frame of width / divisor x height / divisor, normalised, the mode of the posterior. The image goes through
    one H.264 frame at quality `image_crf` first, like the images the model was trained with (0 leaves that out), and
    is stretched to the frame.
    """

    def __init__(self, module: AutoencoderKLLTX2Video, image_crf: int) -> None:
        self.module = module
        self._dtype = module.dtype
        self._image_crf = image_crf
        self._processor = VideoProcessor(
            vae_scale_factor=module.spatial_compression_ratio, resample="bilinear"
        )

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"decode": self._decode, "encode": self._encode}[op]
        return [run(call) for call in calls]

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        latent = tensor(call, "latent").unsqueeze(0).to(self._dtype)
        mean, std = self._statistics(latent)
        video = self.module.decode(
            latent * std / self.module.config.scaling_factor + mean, None, return_dict=False
        )[0]
        frames = (video * 0.5 + 0.5).clamp(0, 1)[0].permute(1, 2, 3, 0).float().cpu()
        return ComponentOutput(output=CallOutput(tensors={"frames": frames}))

    def _encode(self, call: ResolvedCall) -> ComponentOutput:
        image, divisor = tensor(call, "image"), int(call.static["divisor"])
        width, height = whole(call, "width") // divisor, whole(call, "height") // divisor
        pixels = apply_image_conditioning_crf(image.cpu().numpy(), self._image_crf)
        frame = self._processor.preprocess(PIL.Image.fromarray(pixels), height=height, width=width)
        frame = frame.to(self.module.device, self._dtype).unsqueeze(2)
        latent = self.module.encode(frame).latent_dist.mode().to(torch.float32)
        mean, std = self._statistics(latent)
        latent = (latent - mean) * 1.0 / std  # the reference leaves the scaling factor out here
        return ComponentOutput(
            output=CallOutput(tensors={"latent": latent[0]}, notes=_stretched(image, width, height))
        )

    def _statistics(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        mean, std = self.module.latents_mean, self.module.latents_std
        return mean.view(1, -1, 1, 1, 1).to(latent), std.view(1, -1, 1, 1, 1).to(latent)


class Upsampler:
    """Op `upsample`: row latent [C, F, H, W], not normalised; output latent [C, F, 2H, 2W] in the module's dtype."""

    def __init__(self, module: LTX2LatentUpsamplerModel) -> None:
        self.module = module
        self._dtype = module.dtype

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        return [self._upsample(call) for call in calls]

    def _upsample(self, call: ResolvedCall) -> ComponentOutput:
        latent: Tensor = self.module(tensor(call, "latent").unsqueeze(0).to(self._dtype))
        return ComponentOutput(output=CallOutput(tensors={"latent": latent[0]}))


def _stretched(image: Tensor, width: int, height: int) -> tuple[str, ...]:
    rows, columns = image.shape[:2]
    if columns * height == rows * width:
        return ()
    return (
        f"the image of {columns}x{rows} was stretched to the shape of the clip, as the reference does it",
    )
