"""UniPC of order 2 for flow matching (B2(h), data prediction, lower order at the ends), as pure functions.

Paper: Zhao et al. 2023, "UniPC", arXiv 2302.04867. Reference: diffusers 0.42.1, `UniPCMultistepScheduler` with
`use_flow_sigmas`, `prediction_type="flow_prediction"`, `solver_order=2`, `solver_type="bh2"`; bit-equal to it, which
is why operations keep the reference's order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ORDER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UniPCState:
    """What a multistep method remembers.

    Args:
        last_sample: the corrected latent of the step before; None before the first step.
        x0s: data predictions of up to two steps before, oldest first.
        order: order that the predictor of the step before used; 0 before the first step.
    """

    last_sample: Tensor | None
    x0s: tuple[Tensor, ...]
    order: int


def unipc_init() -> UniPCState:
    return UniPCState(last_sample=None, x0s=(), order=0)


def unipc_step(
    state: UniPCState, *, sample: Tensor, velocity: Tensor, x0: Tensor, sigmas: Tensor, step: int
) -> tuple[Tensor, UniPCState]:
    """Corrects the latent with the new prediction (not on the first step), then predicts the next one.

    Args:
        sample: latent at sigma[step], fp32 [C, F, H, W].
        velocity: unused by this method; every sampler takes the same arguments.
        x0: data prediction `sample - sigma * velocity` at this step.
        sigmas: float32 [steps + 1] on the CPU.
        step: 0-based.
    """
    if state.last_sample is not None:
        sample = _correct(state, sample, x0, sigmas, step)
    steps = len(sigmas) - 1
    order = min(ORDER, steps - step, len(state.x0s) + 1)
    x0s = (*state.x0s, x0)[-ORDER:]
    following = _predict(sample, x0s, sigmas, step, order)
    return following, UniPCState(last_sample=sample, x0s=x0s, order=order)


@dataclass(frozen=True, slots=True)
class _Interval:
    """One step of log-SNR time, from sigma `start` to sigma `end`; scalars are fp32 0-d tensors."""

    start: Tensor
    end: Tensor
    alpha: Tensor
    log_snr_start: Tensor
    h: Tensor

    @property
    def phi_1(self) -> Tensor:
        return torch.expm1(-self.h)

    def linear(self, x: Tensor, m0: Tensor) -> Tensor:
        """The exact solution for a constant data prediction `m0`."""
        return self.end / self.start * x - self.alpha * self.phi_1 * m0


def _log_snr(sigma: Tensor) -> Tensor:
    return torch.log(1 - sigma) - torch.log(sigma)


def _interval(sigmas: Tensor, start: int, end: int, device: torch.device) -> _Interval:
    first, last = sigmas[start].to(device), sigmas[end].to(device)
    log_snr_start = _log_snr(first)
    return _Interval(first, last, 1 - last, log_snr_start, _log_snr(last) - log_snr_start)


def _difference(interval: _Interval, before: Tensor, m_before: Tensor, m0: Tensor) -> tuple[Tensor, Tensor]:
    """Position of the step `before` in units of this interval, and the divided difference of predictions."""
    rk = (_log_snr(before) - interval.log_snr_start) / interval.h
    return rk, (m_before - m0) / rk


def _predict(sample: Tensor, x0s: tuple[Tensor, ...], sigmas: Tensor, step: int, order: int) -> Tensor:
    device = sample.device
    interval = _interval(sigmas, step, step + 1, device)
    m0 = x0s[-1]
    following = interval.linear(sample, m0)
    if order == ORDER:
        _, d1 = _difference(interval, sigmas[step - 1].to(device), x0s[-2], m0)
        half = torch.ones(1, dtype=sample.dtype, device=device) * 0.5  # order 2 needs no solve
        following = following - interval.alpha * interval.phi_1 * (half * d1)
    return following.to(sample.dtype)


def _correct(state: UniPCState, sample: Tensor, x0: Tensor, sigmas: Tensor, step: int) -> Tensor:
    assert state.last_sample is not None
    device = sample.device
    interval = _interval(sigmas, step - 1, step, device)
    m0 = state.x0s[-1]
    dtype = state.last_sample.dtype
    change = x0 - m0
    if state.order == 1:
        residual = torch.ones(1, dtype=dtype, device=device) * 0.5 * change
    else:
        rk, d1 = _difference(interval, sigmas[step - 2].to(device), state.x0s[-2], m0)
        weights = _order_2_weights(interval, rk).to(dtype)
        residual = weights[:1] * d1 + weights[-1] * change
    corrected = interval.linear(state.last_sample, m0) - interval.alpha * interval.phi_1 * residual
    return corrected.to(dtype)


def _order_2_weights(interval: _Interval, rk: Tensor) -> Tensor:
    """Solves the order conditions of UniC-2: R rho = b with R = [[1, 1], [rk, 1]]."""
    hh = -interval.h
    phi_1 = interval.phi_1
    phi_2 = phi_1 / hh - 1
    phi_3 = phi_2 / hh - 1 / 2
    rks = torch.stack([rk, torch.ones((), device=rk.device)])
    conditions = torch.stack([torch.pow(rks, 0), torch.pow(rks, 1)])
    wanted = torch.stack([phi_2 * 1 / phi_1, phi_3 * 2 / phi_1])
    weights: Tensor = torch.linalg.solve(conditions, wanted)
    return weights
