"""The components: how fv loads the modules and calls them, one named operation on a list of single samples each.

The generic loops decide which operations there are: `OneCall` asks the text encoder for `encode`, `FlowDenoise` asks
for `velocity`, `VaeDecode` for `prepare` and `decode`. Nothing is kept in a component between two calls.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from fv_core.card import LoadContext
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import form, stacked, tensor, unstacked
from fv_core.loop.rowwise import rowwise, sharing
from fv_echo import modules


class TextEncoder:
    """Op `encode`: row text (str), output embeds [length, width]."""

    def __init__(self, context: LoadContext) -> None:
        sizes: Any = context.config()
        with torch.device("meta"):  # no memory yet: `fill` checks the weights, or makes them from a seed
            module = modules.Text(**sizes)
        self.module = context.fill(module)
        self._length: int = sizes["length"]

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return op  # every prompt comes to the same shape, so all may share a forward

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        texts = [str(call.rows["text"]).encode() for call in calls]
        padded = [[*text[: self._length], *[self.module.PAD] * (self._length - len(text))] for text in texts]
        embeds = self.module(torch.tensor(padded, device=self.module.place.weight.device))
        return [
            _output("embeds", row, *self._cut(text))
            for row, text in zip(unstacked(embeds), texts, strict=True)
        ]

    def _cut(self, text: bytes) -> tuple[str, ...]:
        # What is not used as it was asked is told; the result lists it as adjusted.
        return (f"the prompt has {len(text)} bytes and was cut to {self._length}",) * (
            len(text) > self._length
        )


class Denoiser:
    """Op `velocity`: rows latent [C, F, H, W], timestep (int), text [L, D]; output velocity [C, F, H, W]."""

    def __init__(self, context: LoadContext) -> None:
        sizes: Any = context.config()
        with torch.device("meta"):
            module = modules.Denoiser(**sizes)
        self.module = rowwise(context.fill(module))  # a sample's bits do not depend on who shares its forward
        self._dtype = context.dtype

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return (op, form(call, "latent"))

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        latents = stacked(calls, "latent").to(self._dtype)
        text = stacked(calls, "text").to(self._dtype)
        timesteps = torch.tensor([int(call.rows["timestep"]) for call in calls], device=latents.device)
        with sharing(calls):
            velocity = self.module(latents, timesteps, text)
        return [_output("velocity", row) for row in unstacked(velocity)]


class Vae:
    """Ops `prepare` (row latent, output latent in the decoder's own scale) and `decode`.

    decode: row latent [C, 1, H, W], static first (bool), one cache with the latent frame before; output frames fp32
    [f, height, width, 3] in [0, 1]: one frame for the first latent frame, four for each after it.
    """

    def __init__(self, context: LoadContext) -> None:
        sizes: Any = context.config()
        with torch.device("meta"):
            module = modules.Decoder(**sizes)
        self.module = context.fill(module)

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)  # one sample per forward

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"prepare": self._prepare, "decode": self._decode}[op]
        return [run(call) for call in calls]

    def _prepare(self, call: ResolvedCall) -> ComponentOutput:
        return _output("latent", tensor(call, "latent") * 2.0)

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        latent = tensor(call, "latent")
        (content,) = call.caches
        before = content[0] if content else torch.zeros_like(latent)
        assert isinstance(before, Tensor)
        frames = self.module(torch.cat([before, latent], dim=1)[None])[0].permute(0, 2, 3, 1)
        shown = frames[-1:] if call.static["first"] else frames
        return ComponentOutput(output=CallOutput(tensors={"frames": shown}), caches=([latent],))


def _output(name: str, tensor: Tensor, *notes: str) -> ComponentOutput:
    return ComponentOutput(output=CallOutput(tensors={name: tensor}, notes=notes))
