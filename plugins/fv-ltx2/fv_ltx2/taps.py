"""What the pipelines compute while they are watched, by the names that fv gives the same tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from torch import Tensor, nn

from fv_ltx2.guidance import COND, ISOLATED, SKIPPED, UNCOND
from fv_ltx2.packing import Grid, unpack
from fv_ltx2.schedule import Shift

_NAMES: Final = {"video": "velocity", "audio": "audio_velocity"}


class Taps:
    """Tensors by tap, in the order they come; one that comes again stays as it was."""

    def __init__(self) -> None:
        self.found: dict[str, Tensor] = {}

    def keep(self, tap: str, tensor: Tensor) -> None:
        self.found.setdefault(tap, tensor.clone())

    def node(self, node: str, **outputs: Tensor) -> None:
        """A component node: what its call returned is what it made."""
        for name, tensor in outputs.items():
            self.keep(f"{node}/0/{COND}/{name}", tensor)
            self.keep(f"{node}/0/{name}", tensor)

    def watched(self, function: Callable[..., Tensor], node: str, output: str) -> Callable[..., Tensor]:
        """`function`, whose first result of a batch of one is kept as the node's output."""

        def call(*args: Any, **more: Any) -> Tensor:
            result = function(*args, **more)
            self.node(node, **{output: result[0]})
            return result

        return call


class Steps:
    """The denoising steps of one call of a pipeline, tapped as the loop node `node`."""

    def __init__(self, taps: Taps, node: str, grid: Grid, generator: torch.Generator, total: int) -> None:
        self.audio: list[Tensor] = []
        self._taps = taps
        self._node = node
        self._grid = grid
        self._generator = generator
        self._total = total
        self._step = 0

    def scheduler(self, *, fixed: bool) -> FlowMatchEulerDiscreteScheduler:
        """The pipeline's scheduler; what any copy of it returns is noted, the audio's last."""
        shift, noted = Shift(), self.audio

        class Noting(FlowMatchEulerDiscreteScheduler):  # type: ignore[misc]
            def step(self, *args: Any, **more: Any) -> Any:
                result = super().step(*args, **more)
                noted.append(result[0])
                return result

        if fixed:
            return Noting(use_dynamic_shifting=False, shift_terminal=None)
        return Noting(
            use_dynamic_shifting=True,
            base_shift=shift.base,
            max_shift=shift.most,
            base_image_seq_len=shift.base_tokens,
            max_image_seq_len=shift.most_tokens,
            shift_terminal=shift.terminal,
        )

    def velocities(
        self, module: nn.Module, args: object, asked: dict[str, Any], outputs: tuple[Tensor, Tensor]
    ) -> None:
        """Forward hook of the transformer."""
        if asked["isolate_modalities"]:
            branches: tuple[str, ...] = (ISOLATED,)
        elif asked["spatio_temporal_guidance_blocks"]:
            branches = (SKIPPED,)
        else:
            branches = (UNCOND, COND)[-len(outputs[0]) :]
        for row, branch in enumerate(branches):
            for name, output in zip(_NAMES.values(), outputs, strict=True):
                self._taps.keep(f"{self._node}/{self._step}/{branch}/{name}", output[row])

    def done(self, pipeline: Any, step: int, timestep: Any, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The pipeline's callback."""
        latent = state["latents"][0]
        last = step == self._total - 1
        at = f"{self._node}/{step}"
        self._taps.keep(f"{at}/latent", unpack(latent, self._grid) if last else latent)
        self._taps.keep(f"{at}/audio_latent", self.audio[-1][0])
        if self._node == "base":  # the node after it hands no random stream on
            self._taps.keep(f"{at}/rng", self._generator.get_state())
        self._step = step + 1
        return state
