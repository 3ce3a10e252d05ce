"""Euler's method for flow matching: the velocity is dx/dsigma.

Source: diffusers 0.42.1, `FlowMatchEulerDiscreteScheduler.step` without stochastic sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class EulerState:
    """Euler remembers nothing of the samples.

    Args:
        changes: fp32 [steps], how far sigma goes at each step, where the samples are.
    """

    changes: Tensor


def euler_init(sigmas: Tensor) -> EulerState:
    """The state before the first step. `sigmas`: float32 [steps + 1], on the device of the samples."""
    return EulerState(changes=sigmas.diff())


def euler_step(
    state: EulerState, *, sample: Tensor, velocity: Tensor, x0: Tensor, step: int
) -> tuple[Tensor, EulerState]:
    """`x + (sigma[i+1] - sigma[i]) * v` in fp32, as the velocity's dtype.

    Args:
        sample: latent at sigma[step]; any shape.
        velocity: model output, same shape.
        x0: unused by this method; every sampler takes the same arguments.
        step: 0-based.
    """
    return (sample.float() + state.changes[step] * velocity).to(velocity.dtype), state
