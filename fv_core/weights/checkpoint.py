"""The strict way to give a component its weights, from a folder or from a seed.

From a folder every name, shape and file is checked on the headers before a tensor is read. Each tensor is then cast
once and copied into memory of its own: aligned to 64 bytes, which bit-exact products need and a mapped file lacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from fv_core.card import ComponentSpec
from fv_core.errors import WeightsError
from fv_core.weights.architecture import agreed_config, check_count
from fv_core.weights.layout import Shards, named, read_json, read_shards
from fv_core.weights.seeded import fill_from_seed, replace_parameters
from fv_core.weights.strict_load import check, load, outline, place, tie

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class CheckpointContext:
    """What a component factory gets; implements `fv_core.card.LoadContext`.

    Args:
        spec: the component to load.
        folder: the checkpoint's root; None makes the weights from `seed`.
        seed: 0 to 2^64 - 1; read only without a folder.
        device: where the weights go.
        dtype: the floating-point type of all parameters but those a factory keeps in fp32.
        check_only: `fill` compares the headers, where there are any, with the module, and leaves it on the meta device,
            where its tensors have the types and ties that they get with their values.
        component: its id in the card, for errors.
        given: what the factory was given to read so far, in order.
    """

    spec: ComponentSpec
    folder: Path | None
    seed: int
    device: torch.device
    dtype: torch.dtype
    check_only: bool = False
    component: str = ""
    given: list[Path] = field(default_factory=list, compare=False)

    @property
    def source(self) -> Path | None:
        """The folder with the component's weights: its first subfolder, or the root where it names none."""
        if self.folder is None:
            return None
        return self.folder / self.spec.subfolders[0] if self.spec.subfolders else self.folder

    def config(self, filename: str = "config.json") -> dict[str, object]:
        """The architecture's arguments, as `LoadContext.config`.

        Raises:
            WeightsError: FV252 the file is missing, FV253 it is not a JSON object, FV254 it contradicts the card.
        """
        if self.source is None:
            return dict(self.spec.config)
        path = self.source / filename
        agreed = agreed_config(self.component, self.spec, path, read_json(path))
        self.given.append(path)
        return agreed

    def fill(
        self,
        module: M,
        *,
        keep_fp32: Sequence[str] = (),
        aliases: Mapping[str, str] | None = None,
        initialise: Callable[[M], None] | None = None,
        names: Mapping[str, str] | None = None,
        others: Sequence[str] = (),
        subfolder: str | None = None,
    ) -> M:
        """Gives `module` its weights, as `LoadContext.fill`; they take no gradient.

        An alias that a file holds all the same must equal its target.

        Raises:
            WeightsError: FV252 file missing, FV253 file damaged, FV254 names, shapes or the number of parameters
                differ, or a tensor was left without a value.
        """
        ties = aliases or {}
        place_of = torch.device("meta") if self.check_only else self.device

        def settle(name: str, tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(place_of, _dtype(name, tensor, self.dtype, keep_fp32), copy=True)

        if self.folder is None:
            tie(module, ties)
            if self.check_only:
                return replace_parameters(module, settle)
            fill_from_seed(module, self.seed, initialise, settle)
        else:
            assert self.source is not None  # of a folder
            if subfolder is None:
                check_count(self.component, self.spec, self.source, module, ties)
            shards = self._shards(subfolder).read_as(names or {}, others)
            check(module, shards, ties)
            self.given.extend(self._others() or (self.source,))
            if self.check_only:
                outline(module, ties, settle)
            else:
                load(module, shards, ties, settle)
            tie(module, ties)
            if self.check_only:
                return module
        return _finish(module, self.device)

    def _shards(self, subfolder: str | None) -> Shards:
        assert self.folder is not None and self.source is not None
        if subfolder is not None:
            return read_shards(self.folder / subfolder)
        return read_shards(self.source, self.spec.files)

    def suspects(self) -> tuple[Path, ...]:
        """The files that a factory was at work on when it failed; () where it makes its weights from a seed.

        Raises:
            WeightsError: FV253, one of them is not even JSON.
        """
        if self.source is None:
            return ()
        last = self.given[-1] if self.given else self.source
        found = tuple(sorted(last.glob("*.json"))) if last.is_dir() else (last,)
        for path in found:
            read_json(path)
        return found or (last,)

    def _others(self) -> tuple[Path, ...]:
        """The folders beside the one with the weights."""
        return () if self.folder is None else tuple(self.folder / name for name in self.spec.subfolders[1:])


def _dtype(name: str, tensor: torch.Tensor, dtype: torch.dtype, keep_fp32: Sequence[str]) -> torch.dtype:
    if not tensor.is_floating_point():
        return tensor.dtype
    return dtype if set(keep_fp32).isdisjoint(name.split(".")) else torch.float32


def _finish(module: M, device: torch.device) -> M:
    tensors = itertools.chain(module.named_parameters(), module.named_buffers())
    if bare := [name for name, tensor in tensors if tensor.is_meta]:
        raise WeightsError(
            "FV254",
            name=f"weights of {type(module).__name__}",
            rule=f"{len(bare)} tensors were left without a value: {named(bare)}",
            remedy="The component's factory must build its buffers with their values.",
        )
    for name, buffer in list(module.named_buffers()):
        place(module, name, buffer.to(device))
    return module.requires_grad_(False).eval()
