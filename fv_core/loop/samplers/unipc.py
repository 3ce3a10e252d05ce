"""UniPC of order 2 for flow matching (B2(h), data prediction, lower order at the ends), as pure functions.

Paper: Zhao et al. 2023, "UniPC", arXiv 2302.04867. Reference: diffusers 0.42.1, `UniPCMultistepScheduler` with
`use_flow_sigmas`, `prediction_type="flow_prediction"`, `solver_order=2`, `solver_type="bh2"`; bit-equal to it, which
is why operations keep the reference's order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

ORDER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UniPCState:
    """What a multistep method remembers.

    Args:
        intervals: fp32 [steps, 5], what `tabulated` makes of the noise levels, where the samples are.
        last_sample: the corrected latent of the step before; None before the first step.
        x0s: data predictions of up to two steps before, oldest first.
        order: order that the predictor of the step before used; 0 before the first step.
    """

    intervals: Tensor
    last_sample: Tensor | None
    x0s: tuple[Tensor, ...]
    order: int


def unipc_init(sigmas: Tensor) -> UniPCState:
    """The state before the first step. `sigmas`: float32 [steps + 1], falling to 0, on the device of the samples."""
    return UniPCState(intervals=tabulated(sigmas), last_sample=None, x0s=(), order=0)


def unipc_step(
    state: UniPCState, *, sample: Tensor, velocity: Tensor, x0: Tensor, step: int
) -> tuple[Tensor, UniPCState]:
    """Corrects the latent with the new prediction (not on the first step), then predicts the next one.

    Args:
        sample: latent at sigma[step], fp32 [C, F, H, W].
        velocity: unused by this method; every sampler takes the same arguments.
        x0: data prediction `sample - sigma * velocity` at this step.
        step: 0-based.
    """
    if state.last_sample is not None:
        sample = _correct(state, state.last_sample, x0, step)
    order = min(ORDER, len(state.intervals) - step, len(state.x0s) + 1)
    x0s = (*state.x0s, x0)[-ORDER:]
    following = _predict(_interval(state, step), sample, x0s, order)
    return following, UniPCState(intervals=state.intervals, last_sample=sample, x0s=x0s, order=order)


class _Interval(NamedTuple):
    """What the noise levels alone say of a step, fp32 [] each.

    Args:
        ratio: sigma at its end over that at its start.
        drift: alpha at its end times phi_1 = expm1(-h), h its length in log-SNR.
        rk: where the step before it began, in units of h from its own beginning.
        weight_before, weight_change: solve the order conditions of UniC-2.
    """

    ratio: Tensor
    drift: Tensor
    rk: Tensor
    weight_before: Tensor
    weight_change: Tensor

    def linear(self, x: Tensor, m0: Tensor) -> Tensor:
        """The exact solution for a constant data prediction `m0`."""
        return self.ratio * x - self.drift * m0


def tabulated(sigmas: Tensor) -> Tensor:
    """The `_Interval` of every step as a row, [steps, 5]; the last three of the first one, before which none is, are 0.

    Bit-equal to what diffusers computes anew at each step: sums, products and quotients are rounded alike one by one
    or in a row; logarithms, exponentials and the solution of a system need not be, and are taken one by one.
    """
    log_snr = torch.stack([torch.log(1 - sigma) - torch.log(sigma) for sigma in sigmas])
    h = log_snr.diff()
    phi_1 = torch.stack([torch.expm1(-one) for one in h])
    rk = (log_snr[:-2] - log_snr[1:-1]) / h[1:]
    table = sigmas.new_zeros(len(h), len(_Interval._fields))
    table[:, 0] = sigmas[1:] / sigmas[:-1]
    table[:, 1] = (1 - sigmas[1:]) * phi_1
    table[1:, 2] = rk
    for row, *facts in zip(table[1:], h[1:], phi_1[1:], rk, strict=True):
        row[3:] = _order_2_weights(*facts)
    return table


def _order_2_weights(h: Tensor, phi_1: Tensor, rk: Tensor) -> Tensor:
    """Solves the order conditions of UniC-2: R rho = b with R = [[1, 1], [rk, 1]]."""
    phi_2 = phi_1 / -h - 1
    phi_3 = phi_2 / -h - 1 / 2
    one = torch.ones_like(rk)
    conditions = torch.stack([torch.stack([one, one]), torch.stack([rk, one])])
    wanted = torch.stack([phi_2 / phi_1, phi_3 * 2 / phi_1])
    weights: Tensor = torch.linalg.solve(conditions, wanted)
    return weights


def _interval(state: UniPCState, step: int) -> _Interval:
    return _Interval(*state.intervals[step].unbind())


def _predict(interval: _Interval, sample: Tensor, x0s: tuple[Tensor, ...], order: int) -> Tensor:
    m0 = x0s[-1]
    following = interval.linear(sample, m0)
    if order == ORDER:
        d1 = (x0s[-2] - m0) / interval.rk
        following = following - interval.drift * (0.5 * d1)  # order 2 needs no solve
    return following.to(sample.dtype)


def _correct(state: UniPCState, last_sample: Tensor, x0: Tensor, step: int) -> Tensor:
    """The latent at `step`, from the one before it and what the data prediction here adds to that there."""
    interval, m0, dtype = _interval(state, step - 1), state.x0s[-1], last_sample.dtype
    change = x0 - m0
    if state.order == 1:
        residual = 0.5 * change
    else:
        d1 = (state.x0s[-2] - m0) / interval.rk
        residual = interval.weight_before.to(dtype) * d1 + interval.weight_change.to(dtype) * change
    corrected = interval.linear(last_sample, m0) - interval.drift * residual
    return corrected.to(dtype)
