"""Expert routing by boundary: one denoiser for high noise, another for low noise.

Reference: diffusers 0.42.1, `WanPipeline` with `boundary_ratio` (Wan 2.2 mixture of experts).
"""

from __future__ import annotations

HIGH = "denoiser"
LOW = "denoiser_low"


def expert(timestep: int, boundary: float | None, train_timesteps: int) -> str:
    """The role that denoises at `timestep`: HIGH from `boundary * train_timesteps` up, LOW below.

    Args:
        timestep: 0 <= timestep <= train_timesteps.
        boundary: fraction of the noise levels, in [0, 1]; None has one expert.
    """
    return HIGH if boundary is None or timestep >= boundary * train_timesteps else LOW
