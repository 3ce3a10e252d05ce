"""The causal denoiser as a component: reads and writes of its window of keys and values are lists handed in and out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor

from fv_core.cache import CacheContent
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import tensor
from fv_wan_causal.forward import text_keys_and_values, velocity


class Denoiser:
    """Ops of `fv_core.loop.chunk_rollout`, one sample per forward: their key lengths differ.

    text: row text [L, D], cache `text_kv` appended: keys and values of every layer, alternating, each
    [L, heads, head_dim].
    velocity, commit: rows latent [C, F, H, W] and timestep, static start, sink, recent and times; output velocity
    [C, F, H, W] in the transformer's dtype. Caches: `slab_kv`, read by velocity and appended by commit, which holds
    keys (rotated, at their absolute frame) and values of every layer [tokens, heads, head_dim]; and `text_kv`, read.
    """

    def __init__(self, module: WanTransformer3DModel) -> None:
        self.module = module
        self._dtype = module.dtype  # walks every parameter, so read once

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        return id(call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"text": self._text, "velocity": self._velocity, "commit": self._commit}[op]
        return [run(call) for call in calls]

    def _text(self, call: ResolvedCall) -> ComponentOutput:
        content: CacheContent = [*text_keys_and_values(self.module, tensor(call, "text"))]
        return ComponentOutput(output=CallOutput(tensors={}), caches=(content,))

    def _velocity(self, call: ResolvedCall) -> ComponentOutput:
        return ComponentOutput(output=self._forward(call, commits=False), caches=(None, None))

    def _commit(self, call: ResolvedCall) -> ComponentOutput:
        output = self._forward(call, commits=True)
        return ComponentOutput(output=output, caches=(call.caches[0], None))

    def _forward(self, call: ResolvedCall, *, commits: bool) -> CallOutput:
        latent = tensor(call, "latent").to(self._dtype)
        window, text = call.caches
        static = {name: int(value) for name, value in call.static.items()}
        times = torch.full(
            (static["times"],), float(call.rows["timestep"]), dtype=torch.float64, device=latent.device
        )
        _, rows, columns = self.module.config.patch_size
        frame = latent.shape[2] // rows * (latent.shape[3] // columns)

        def attend(layer: int, *own: Tensor) -> tuple[Tensor, Tensor]:
            at = slice(2 * layer, 2 * layer + 2)
            past = [part for part in window[at] if isinstance(part, Tensor)]
            key, value = (
                (_joined(kept, new, static["sink"] * frame, static["recent"] * frame))
                for kept, new in zip(past or (None, None), own, strict=True)
            )
            if commits:
                window[at] = [key, value]  # layer by layer, so that no two windows exist whole
            return key, value

        flow = velocity(self.module, latent, times, start=static["start"], text=_tensors(text), attend=attend)
        return CallOutput(tensors={"velocity": flow})


def _joined(past: Tensor | None, own: Tensor, sink: int, recent: int) -> Tensor:
    """What a chunk attends: the first `sink` and the last `recent` tokens of the past, then its own."""
    if past is None:
        return own
    if len(past) <= sink + recent:
        return torch.cat([past, own])
    return torch.cat([past[:sink], past[len(past) - recent :], own])


def _tensors(content: CacheContent) -> list[Tensor]:
    return [part for part in content if isinstance(part, Tensor)]
