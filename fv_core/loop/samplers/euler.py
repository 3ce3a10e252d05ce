"""Euler's method for flow matching: the velocity is dx/dsigma.

Source: diffusers 0.42.1, `FlowMatchEulerDiscreteScheduler.step` without stochastic sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class EulerState:
    """Euler remembers nothing."""


def euler_init() -> EulerState:
    return EulerState()


def euler_step(
    state: EulerState, *, sample: Tensor, velocity: Tensor, x0: Tensor, sigmas: Tensor, step: int
) -> tuple[Tensor, EulerState]:
    """`x + (sigma[i+1] - sigma[i]) * v` in fp32, as the velocity's dtype.

    Args:
        sample: latent at sigma[step]; any shape.
        velocity: model output, same shape.
        x0: unused by this method; every sampler takes the same arguments.
        sigmas: float32 [steps + 1].
        step: 0-based.
    """
    change = (sigmas[step + 1] - sigmas[step]).to(sample.device)
    return (sample.float() + change * velocity).to(velocity.dtype), state
