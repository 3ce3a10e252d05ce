"""All that changes while a model is trained: parameters, optimizers, averages and the step. Nothing else is stored.

Learning rate, order of samples and everything drawn are functions of the step and the settings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fv_core.training.config import TrainTable
from fv_core.training.lora import factor_names
from fv_core.training.maths import ema_update


@dataclass(slots=True, kw_only=True)
class Role:
    """A part that is trained, with an optimizer of its own.

    Args:
        parameters: by `component/name`. average: of them, fp32, in their order; None keeps none.
        updates: optimizer steps taken.
    """

    name: str
    parameters: dict[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    average: list[Tensor] | None
    updates: int = 0

    def values(self) -> list[nn.Parameter]:
        return list(self.parameters.values())

    def update(self, decay: float) -> None:
        """One optimizer step, which is what moves the average."""
        self.optimizer.step()
        self.updates += 1
        if self.average is not None:
            ema_update(self.average, self.values(), decay)


@dataclass(slots=True, kw_only=True)
class TrainState:
    """Where a run is: `step` steps are done, of which `skipped` were left out because they were not finite."""

    roles: Mapping[str, Role]
    step: int = 0
    skipped: int = 0

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """All tensors that make the run go on, by file and name."""
        return {
            "weights": dict(self._each("weights")),
            "average": dict(self._each("average")),
            "optimizer": dict(self._each("optimizer")),
        }

    def numbers(self) -> dict[str, Any]:
        """What is no tensor."""
        updates = {name: role.updates for name, role in self.roles.items()}
        return {"step": self.step, "skipped": self.skipped, "updates": updates}

    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]], numbers: Mapping[str, Any]) -> None:
        """Takes back what `tensors` and `numbers` gave of a run of the same roles.

        Raises:
            KeyError: a tensor is missing, or is of no role, or of another shape.
        """
        self._check(tensors, numbers)
        moments: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for stored, tensor in tensors["optimizer"].items():
            key, _, part = stored.rpartition("/")
            moments[key][part] = tensor
        for role in self.roles.values():
            for i, (name, parameter) in enumerate(role.parameters.items()):
                key = f"{role.name}/{name}"
                with torch.no_grad():
                    parameter.copy_(tensors["weights"][key])
                if role.average is not None:
                    role.average[i].copy_(tensors["average"][key])
                role.optimizer.state[parameter] = {
                    part: tensor.to(parameter.device) for part, tensor in moments[key].items()
                }
            role.updates = int(numbers["updates"][role.name])
        self.step, self.skipped = int(numbers["step"]), int(numbers["skipped"])

    def _check(self, tensors: Mapping[str, Mapping[str, Tensor]], numbers: Mapping[str, Any]) -> None:
        """What is missing, passed over or spread to another shape would make another run of it, and say nothing."""
        for role in self.roles.values():
            shapes = {f"{role.name}/{name}": one.shape for name, one in role.parameters.items()}
            for kind in ("weights", "average") if role.average is not None else ("weights",):
                found = {key: one.shape for key, one in tensors[kind].items() if _is_of(key, role)}
                if shapes != found:
                    raise KeyError(f"{kind}: {', '.join(sorted(dict(shapes.items() ^ found.items())))}")
            moments = {key: one for key, one in tensors["optimizer"].items() if _is_of(key, role)}
            moved = {key.rpartition("/")[0] for key in moments}
            if moved != (set(shapes) if numbers["updates"][role.name] else set()):
                raise KeyError(f"optimizer: {', '.join(sorted(set(shapes) ^ moved))}")
            for key, one in moments.items():
                if one.ndim and one.shape != shapes[key.rpartition("/")[0]]:
                    raise KeyError(f"optimizer: {key} {list(one.shape)}")

    def _each(self, kind: str) -> Iterator[tuple[str, Tensor]]:
        for role in self.roles.values():
            for i, (name, parameter) in enumerate(role.parameters.items()):
                key = f"{role.name}/{name}"
                if kind == "weights":
                    yield key, parameter.detach()
                elif kind == "average" and role.average is not None:
                    yield key, role.average[i]
                elif kind == "optimizer":
                    yield from (
                        (f"{key}/{part}", value) for part, value in role.optimizer.state[parameter].items()
                    )


def _is_of(key: str, role: Role) -> bool:
    return key.startswith(f"{role.name}/")


def _trained(module: nn.Module) -> list[tuple[str, nn.Parameter]]:
    factors = set(factor_names(module))
    return [(name, one) for name, one in module.named_parameters() if not factors or name in factors]


def make_role(name: str, modules: Mapping[str, nn.Module], table: TrainTable) -> Role:
    """A role that trains all parameters of the modules, of those with LoRA the factors; these get a gradient."""
    by_component = {component: _trained(module) for component, module in modules.items()}
    parameters = {
        f"{component}/{key}": one for component, named in by_component.items() for key, one in named
    }
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    groups = [
        {"params": [one for _, one in named], "rate": table.lrs.get(component, table.lr)}
        for component, named in by_component.items()
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=table.lr, betas=table.betas, eps=table.eps, weight_decay=table.weight_decay, fused=True
    )
    average = [one.detach().clone().float() for one in parameters.values()] if table.ema else None
    return Role(name=name, parameters=parameters, optimizer=optimizer, average=average)
