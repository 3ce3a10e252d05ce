"""What the trainer, its methods and its data agree on. Methods, those of plugins too, import this and `maths` alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from fv_core.card import ModelCard

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Bucket:
    """What a batch has in common: frames, height and width of its clips in pixels, on the card's grid."""

    frames: int
    height: int
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pixels:
    """A clip as it is shown: uint8 [F, height, width, 3]."""

    frames: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """A clip as the denoise loop has it, normalised: the posterior that the autoencoder's encoder gives.

    Args:
        mean: fp32 [C, f, h, w].
        std: of the same shape; None: the mean is all there is. What is drawn from it is the trainer's to draw, anew
            each time: a cache of drawn latents would freeze one draw.
        valid: latent frames from the first on that count; None: all. The others are padding, and get no gradient.
    """

    mean: Tensor
    std: Tensor | None = None
    valid: int | None = None


Content: TypeAlias = Pixels | Latent


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One clip with its caption.

    Args:
        id: names it within its source, the same in every run: a file's path in its folder.
        caption: what a prompt would say.
        content: what the method that trains takes; see `Method.content`.
        embeds: the caption's embeddings as the text encoder's op `encode` gives them, [L, D], from a cache; None has
            them encoded when they are needed.
    """

    id: str
    caption: str
    content: Content
    embeds: Tensor | None = None


class Source(Protocol):
    """Samples by number: files of a folder, a cache of latents, or clips that are drawn as they are asked for.

    Pure and of fixed length: the same index and epoch give the same sample, in any order, process and rank. That is
    what makes a resumed run equal to one that was never stopped, so nothing about a source is stored.
    """

    def __len__(self) -> int:
        """Samples of an epoch, from 1 up."""
        ...

    def bucket(self, index: int) -> Bucket:
        """The geometry of a sample, without making or reading it. The same in every epoch."""
        ...

    def sample(self, index: int, epoch: int) -> Sample:
        """The sample, 0 <= index < len. An epoch may choose other wordings, crops or clips of a procedure."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DataContext:
    """What a source is made with.

    Args:
        card: of the model that is trained: its grid, limits and defaults.
        content: what the method takes.
        seed: the run's; a source that draws keys its draws by it.
        folder: what relative paths are relative to: where the config file lies.
    """

    card: ModelCard
    content: type[Content]
    seed: int
    folder: Path


class SourceModule(Protocol):
    """A kind of source: a module of `fv_core.training.data` that is named in `SOURCES` there.

    `Config` is a frozen dataclass of the keys that it takes in the table [data] beside those of every source.
    """

    Config: ClassVar[type]

    def build(self, config: Any, context: DataContext) -> Source: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """A part of an optimizer step's samples, all of one bucket.

    `numbers` are their places among all samples that the step takes, over all ranks and parts: what is drawn for a
    sample is keyed by its number, so it is the same however the step is split. `step` counts optimizer steps from 0.
    """

    step: int
    numbers: Sequence[int]
    samples: Sequence[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A figure that is told as a mean: parts of a step add up by `total` and `count`."""

    total: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """A batch's loss: `total` is the *sum* over its samples of what each comes to, so parts add up to the whole."""

    total: Tensor
    metrics: Mapping[str, Mean] = field(default_factory=dict)


class Model(Protocol):
    """The model that is trained, as its card declares it: its program's text encoder, and its loop along the flow.

    Every call is described and read by the card's loops, so what is trained is what is served.
    """

    @property
    def card(self) -> ModelCard: ...

    @property
    def device(self) -> torch.device: ...

    def module(self, component_id: str) -> nn.Module:
        """The weights of a component.

        Raises:
            TrainError: FV704, the model has no such component.
        """
        ...

    @property
    def text_encoder(self) -> str:
        """The id of the component that encodes prompts."""
        ...

    @property
    def denoisers(self) -> tuple[str, ...]:
        """The ids of the components that the loop along the flow drives."""
        ...

    def encode(self, texts: Sequence[str], *, grad: bool) -> list[Tensor]:
        """The embeddings of prompts, [L, D] each, from one forward."""
        ...

    def velocity(
        self, latents: Tensor, sigmas: Sequence[float], conds: Sequence[Tensor], *, grad: bool
    ) -> Tensor:
        """The velocity of each latent at its noise level under its prompt, without guidance, [B, C, F, H, W].

        Args:
            latents: fp32 [B, C, F, H, W]. sigmas: in (0, 1). conds: embeddings as `encode` gives them.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodContext:
    """What a method is made with.

    Args:
        model: what it trains.
        seed: the run's, which keys all that is drawn (`fv_core.loop.keyed`).
        total: samples of an optimizer step, over all ranks and parts.
    """

    model: Model
    seed: int
    total: int


class Method(Protocol):
    """A way of training, built once per run with `(config, context)`.

    `Config` types the table [method]; `content` is what its samples hold. A *role* is a part that is trained and has
    an optimizer of its own: a student, a critic.
    """

    Config: ClassVar[type]
    content: ClassVar[type[Content]]

    @property
    def takes_embeds(self) -> bool:
        """Whether samples of latents may bring their captions' embeddings: not where it trains what makes them."""
        ...

    def roles(self) -> Mapping[str, Mapping[str, nn.Module]]:
        """The modules that each role trains, by component id."""
        ...

    def updates(self, step: int) -> Sequence[str]:
        """The roles that take an optimizer step at this step of the run, in order."""
        ...

    def loss(self, role: str, batch: Batch) -> Loss:
        """What `role` learns from the batch, under grad."""
        ...


class Reward(Protocol):
    """What judges clips, built without arguments."""

    def score(self, frames: NDArray[np.uint8], prompt: str) -> Mapping[str, float]:
        """Figures by name, the more the better.

        Args:
            frames: [F, height, width, 3], RGB. prompt: what they were to show.

        Raises:
            ValueError: the prompt is none that it can judge.
        """
        ...
