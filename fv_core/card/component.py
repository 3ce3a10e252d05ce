"""Components: the modules a card owns, named by reference and loaded when a task first needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import nn

    M = TypeVar("M", bound=nn.Module)

Config: TypeAlias = Mapping[str, object]
"""The plain JSON arguments of a component's architecture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterNames:
    """What files of LoRA call a component and its layers.

    Args:
        prefixes: what stands before the name of a layer, up to its `.` ("transformer."), or up to a `_` where files
            write names with `_` for every `.` ("lora_unet_"). Bare names and peft's `base_model.model.` hold anyway.
        original: parts of names between dots that the model's own release has otherwise, by the module's own:
            {"attn1.to_q": "self_attn.q"}.
    """

    prefixes: tuple[str, ...] = ()
    original: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """One component of a card.

    Args:
        load: `"module:attr"` of a factory `(LoadContext) -> Component`, resolved on first use.
        subfolders: folders of the checkpoint that hold it, the one with its weights first.
        files: names of the safetensors files in the first folder (the root where there is none) that hold it; ()
            finds them by the names that diffusers and transformers give.
        config: arguments of the architecture. A folder's config file may say more, and must not say otherwise.
        params: what its factory reads beside the architecture, which no folder tells (a text length).
        dtype: "card" follows the run's precision; "float32" is kept in fp32 whatever the run uses.
        parameters: how many, to know a folder by, for listings and first guesses of time; 0 means not stated.
        activation: `"module:attr"` of a function `(Geometry, config, dtype bytes) -> bytes` that predicts the peak
            beside the weights; "" means not stated.
        convert: `"module:attr"` of a function from what a published pickle holds to the component's tensors by name,
            for `fv weights convert`; "": its weights are published as safetensors.
        adapters: how files name its layers, which are called as the modules that they are; None takes no adapters.
    """

    load: str
    subfolders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)
    params: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    dtype: str = "card"
    parameters: int = 0
    activation: str = ""
    convert: str = ""
    adapters: AdapterNames | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Pixels and latents of one request, for memory predictions. Latent sizes are [channels, frames, height, width]."""

    width: int
    height: int
    frames: int
    latent: tuple[int, int, int, int]


class LoadContext(Protocol):
    """What core gives to a component factory: where the weights are and a strict way to read them.

    `folder` is the checkpoint's root, None when the card's weights are made from `seed`.
    """

    @property
    def spec(self) -> ComponentSpec: ...

    @property
    def folder(self) -> Path | None: ...

    @property
    def seed(self) -> int: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def dtype(self) -> torch.dtype: ...

    def config(self, filename: str = "config.json") -> dict[str, object]:
        """The architecture's arguments: the spec's own, and what the file in its first subfolder says beyond them.

        Raises:
            WeightsError: FV252 the file is missing, FV253 it is not a JSON object, FV254 it contradicts the card.
        """
        ...

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
        """Gives a module built on the meta device its weights, in eval mode, aligned and on the right device.

        From `folder`: every name, shape and file is checked before a tensor is read. Without a folder
        `initialise` fills a module that has been allocated under the context's seed.

        Where only memory is to be predicted, or a folder to be checked, the module comes back on the meta device, in
        the types that its tensors will have.

        Args:
            module: parameters on the meta device; non-persistent buffers must be real already.
            keep_fp32: path segments whose parameters stay in fp32 at any precision.
            aliases: parameter names tied to another name of the same module, absent from files.
            initialise: fills the parameters where there is no folder; None keeps the classes' own initialisation.
            names: what the files call a tensor, where that is not the module's own name for it.
            others: first parts of the names of tensors in the files that are not this module's; any other tensor
                that the module lacks is refused.
            subfolder: where to read, if not in the component's first subfolder; its files have diffusers' names.

        Raises:
            WeightsError: FV252 file missing, FV253 file damaged, FV254 names, shapes or the number of parameters
                differ.
        """
        ...
