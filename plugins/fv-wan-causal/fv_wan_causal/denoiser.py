"""The causal denoiser as a component: reads and writes of its window of keys and values are lists handed in and out."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import torch
from diffusers import WanTransformer3DModel
from torch import Tensor

from fv_core.cache import CacheContent
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.packing import LeastRows
from fv_core.loop.rows import number, tensor, whole
from fv_core.request import Numerics
from fv_wan_causal.forward import Chunk, rowwise_layers, text_keys_and_values, velocities


class Denoiser:
    """Ops of `fv_core.loop.chunk_rollout`. Prompts, and chunks of whatever length and place, share forwards.

    text: row text [L, D], cache `text_kv` appended: keys and values of every layer, alternating, each
    [L, heads, head_dim].
    velocity, commit: rows latent [C, F, H, W], timestep, start, sink, recent and times; output velocity
    [C, F, H, W] in the transformer's dtype. Caches: `slab_kv`, read by velocity and appended by commit, which holds
    keys (rotated, at their absolute frame) and values of every layer [tokens, heads, head_dim]; and `text_kv`, read.

    Under `fast` the timesteps of all chunks are embedded together. Otherwise each chunk's are by themselves, since they
    are too few rows for a product that has the same bits among others; so a chunk keeps those of the reference.
    """

    def __init__(self, module: WanTransformer3DModel) -> None:
        self.module = module
        self._dtype = module.dtype  # walks every parameter, so read once
        self._least = LeastRows(rowwise_layers(module))

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        """Prompts share, and so do chunks whose frames have equally many tokens.

        Under `exact` those with fewer rows than products need run alone: filled up, they would leave the reference's
        bits.
        """
        if op == "text":
            rows, frame = len(tensor(call, "text")), None
        else:
            latent = tensor(call, "latent")
            frame = self._frame(latent)
            rows = latent.shape[1] * frame
        if call.numerics is Numerics.FAST:
            return frame
        least = self._least.exact()
        return id(call) if least is None or rows < least else frame

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        run = {"text": self._text, "velocity": self._velocity, "commit": self._commit}[op]
        return run(calls)

    def _text(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        found = text_keys_and_values(self.module, [tensor(call, "text") for call in calls])
        return [ComponentOutput(output=CallOutput(tensors={}), caches=([*own],)) for own in found]

    def _velocity(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        outputs = self._forward(calls, commits=False)
        return [ComponentOutput(output=output, caches=(None, None)) for output in outputs]

    def _commit(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        outputs = self._forward(calls, commits=True)
        return [
            ComponentOutput(output=output, caches=(call.caches[0], None))
            for call, output in zip(calls, outputs, strict=True)
        ]

    def _forward(self, calls: Sequence[ResolvedCall], *, commits: bool) -> list[CallOutput]:
        chunks = [self._chunk(call, commits=commits) for call in calls]
        together = all(call.numerics is Numerics.FAST for call in calls)
        flows = velocities(self.module, chunks, times_together=together)
        return [CallOutput(tensors={"velocity": flow}) for flow in flows]

    def _chunk(self, call: ResolvedCall, *, commits: bool) -> Chunk:
        latent = tensor(call, "latent").to(self._dtype)
        window, text = call.caches
        frame = self._frame(latent)
        sink, recent = whole(call, "sink") * frame, whole(call, "recent") * frame

        def attend(layer: int, *own: Tensor) -> tuple[Tensor, Tensor]:
            at = slice(2 * layer, 2 * layer + 2)
            past = _tensors(window[at]) or (None, None)
            key, value = (_joined(kept, new, sink, recent) for kept, new in zip(past, own, strict=True))
            if commits:
                window[at] = [key, value]  # layer by layer, so that no two windows exist whole
            return key, value

        times = torch.full(
            (whole(call, "times"),), number(call, "timestep"), dtype=torch.float64, device=latent.device
        )
        return Chunk(
            latent=latent, times=times, start=whole(call, "start"), text=_tensors(text), attend=attend
        )

    def _frame(self, latent: Tensor) -> int:
        """How many tokens a frame of a latent [C, F, H, W] has."""
        _, rows, columns = self.module.config.patch_size
        return int(latent.shape[2] // rows * (latent.shape[3] // columns))


def _joined(past: Tensor | None, own: Tensor, sink: int, recent: int) -> Tensor:
    """What a chunk attends: the first `sink` and the last `recent` tokens of the past, then its own. Never a view."""
    if past is None:
        return own.clone()
    if len(past) <= sink + recent:
        return torch.cat([past, own])
    return torch.cat([past[:sink], past[len(past) - recent :], own])


def _tensors(content: CacheContent) -> list[Tensor]:
    return [part for part in content if isinstance(part, Tensor)]
