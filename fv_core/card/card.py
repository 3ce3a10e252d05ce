"""The card: weights and the loop that produced and assumes them, as one frozen, versioned, digestible value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias, cast

from fv_core import codec
from fv_core.card.component import ComponentSpec, Geometry
from fv_core.card.limits import FrameRule, ParamRule, SizeRule
from fv_core.parallel import ParallelPlan
from fv_core.program import Program
from fv_core.request import Size, TaskType


class Rung(StrEnum):
    """The ladder of parity, from parts to the whole: a higher rung promises more."""

    COMPONENT = "C0"
    TRAJECTORY = "C1"
    BEHAVIOUR = "C2"
    DISTRIBUTION = "C3"
    ARTIFACT = "C4"


LADDER: Final = tuple(Rung)
"""All rungs in order."""

IMPLEMENTED: Final = (Rung.COMPONENT, Rung.TRAJECTORY)
"""The rungs that fv can measure, and so those that a card may claim."""


class Method(StrEnum):
    """How the weights came to be."""

    UNTRAINED = "untrained"
    PRETRAIN = "pretrain"
    FINETUNE = "finetune"
    DISTIL = "distil"


class SigmaRule(StrEnum):
    """The unshifted grid that the weights were sampled with; see `fv_core.loop.samplers.sigmas`."""

    DIFFUSERS = "diffusers>=0.37"
    WAN_OFFICIAL = "wan-official"


LoopParam: TypeAlias = int | float | str | bool | None | tuple[int | float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSpec:
    """One loop of a card: the class, which of its semantics, and the components it drives.

    `binds` maps the loop's roles to component ids; `params` are the loop's own typed parameters as plain JSON.
    """

    loop: str
    semantics: str
    binds: Mapping[str, str]
    params: Mapping[str, LoopParam] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The training that weights came from, so that it can be taken again.

    Args:
        parents: the models whose weights it began from, the nearest first, as `<id> <fingerprint of the files>`; ()
            began as components are initialised.
        data: kind of the data. data_digest: sha256 in hex of what its samples are made of.
        command: what was typed, "" where a program began it. steps: optimizer steps that were taken.
        seed: of all that was drawn.
        figures: loss, lr and grad_norm of the last step of each role, as `<role>/<figure>`.
    """

    data: str
    data_digest: str
    steps: int
    seed: int
    parents: tuple[str, ...] = ()
    command: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeSpec:
    """What the weights assume of the runtime.

    Args:
        assumes_loop: semantics id of the loop that the weights were made for.
        method: how the weights were made.
        steps: default number of steps.
        steps_fixed: True for weights distilled to exactly `steps` steps.
        sigmas: the very noise levels of distilled weights, `steps` of them, falling, in (0, 1]; () follows the rule.
        sigma_rule: the unshifted sigma grid.
        shift: flow shift, > 0.
        guidance: default classifier-free guidance scale, >= 1; 1 is off.
        precision: torch dtype name that the weights were made in; "" is not stated.
        consistency_required: the lowest rung of parity that the weights can be served with; "" requires none.
        made: the training that they came from; None: it is not told.
    """

    assumes_loop: str
    method: Method = Method.PRETRAIN
    steps: int = 50
    steps_fixed: bool = False
    sigmas: tuple[float, ...] = ()
    sigma_rule: SigmaRule = SigmaRule.DIFFUSERS
    shift: float = 1.0
    guidance: float = 1.0
    precision: str = ""
    consistency_required: str = ""
    made: Provenance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ParitySpec:
    """What the card claims to reproduce: `rungs` of the ladder (C0 component .. C4 artifact), against which version.

    `runner` is the `"module:attr"` of a function `(components, card, request, inputs) -> Mapping[str, Tensor]` that
    runs the reference over the card's own modules and returns its taps in order; "" only where no rung is claimed. Its
    inputs are the request's, by slot ("request.image"). `probes` is the `"module:attr"` of a function `(card) ->
    requests` that makes the requests to measure with; "" makes them from the card's limits. `transcribes` names the
    public code ("owner/name@commit") that the reference is a transcription of, where that code is no package: the
    reference is then the plugin's own, and its version the plugin's. `tolerance` is the largest absolute difference in
    any tap under reference numerics, from 0 up.
    """

    reference: str
    reference_version: str
    transcribes: str = ""
    runner: str = ""
    probes: str = ""
    rungs: tuple[str, ...] = ("C1",)
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """Where the weights come from: a repository of the hub. `revision` is the whole id of the commit that the card was
    verified with; None: none verified yet.
    """

    repo: str
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentSpec:
    """The latent grid: channels, and pixels or frames per latent cell. The first frame has a latent of its own."""

    channels: int = 16
    temporal: int = 4
    spatial: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Legal precisions, and what `auto` means on a CPU and on an accelerator (torch dtype names)."""

    legal: tuple[str, ...] = ("float32", "bfloat16", "float16")
    cpu: str = "float32"
    accelerator: str = "bfloat16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a request gets where it says nothing and the recipe does not either."""

    size: Size = Size(832, 480)
    frames: int = 81
    fps: float = 16.0
    negative_prompt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Legal values as rules, so that errors can name the legal set. Steps and guidance: inclusive ranges from 1 up."""

    size: SizeRule = SizeRule()
    frames: FrameRule = FrameRule()
    steps: tuple[int, int] = (1, 1000)
    guidance: tuple[float, float] = (1.0, 100.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A deployable model: the pair of recipe and runtime. Frozen data; variants are `derive(card, ...)`.

    `model_id` is `<plugin>/<model>`. Components and loops are named by ids that only this card gives meaning to:
    letters, digits, `_` and `-`. `family` names the architecture, as "wan21". `programs` has one task at least.
    `weights` is where its weights lie where that is no repository: "package:folder" for those that a package brings, or
    an absolute folder; "" and no `checkpoint`: they are made on load.
    `parallelism` lists the plans that the model may be spread over devices by; one device is always legal.
    `caches` is the `"module:attr"` of a function `(card, resolved request, dtype bytes) -> Mapping[str, int]`: the most
    bytes that the caches of one request take, by class (`LoopEnv.cache`). That room is reserved before a request
    begins; "" reserves none, and such a request fails where pools turn out to be full.
    """

    model_id: str
    family: str
    version: str
    components: Mapping[str, ComponentSpec]
    loops: Mapping[str, LoopSpec]
    programs: Mapping[TaskType, Program]
    recipe: RecipeSpec
    summary: str = ""
    parity: ParitySpec | None = None
    checkpoint: CheckpointManifest | None = None
    weights: str = ""
    latent: LatentSpec = LatentSpec()
    precision: Precision = Precision()
    parallelism: tuple[ParallelPlan, ...] = ()
    defaults: Defaults = Defaults()
    limits: Limits = Limits()
    params: Mapping[str, ParamRule] = field(default_factory=dict)
    caches: str = ""

    @property
    def capabilities(self) -> tuple[TaskType, ...]:
        """The tasks it offers, in the order of `TaskType` whatever that of `programs`; the first is the default one."""
        return tuple(task for task in TaskType if task in self.programs)

    def param_default(self, name: str, task: TaskType | None = None) -> float | int | str | bool:
        """What a request that does not set `params[name]` gets; of a task, where it has a default of its own."""
        if task is not None and name in self.programs[task].defaults:
            return self.programs[task].defaults[name]
        default = self.params[name].default
        return cast("float | int | str | bool", getattr(self.recipe, name)) if default is None else default

    def geometry(self, size: Size, frames: int) -> Geometry:
        """Pixel and latent sizes of a clip on this card's grid."""
        latent = self.latent
        grid = (latent.channels, (frames - 1) // latent.temporal + 1)
        cells = (size.height // latent.spatial, size.width // latent.spatial)
        return Geometry(width=size.width, height=size.height, frames=frames, latent=(*grid, *cells))

    def to_json(self) -> str:
        """All of it as JSON, with sorted keys and no spaces. `from_json` gives an equal card back."""
        return codec.canonical(codec.encode(self))

    @classmethod
    def from_json(cls, text: str) -> ModelCard:
        """Raises:
        codec.DecodeError: the text is not a card.
        """
        return codec.decode(cls, json.loads(text))

    def digest(self) -> str:
        """sha256 in hex: equal digests are equal cards, however many fields a later version has; see `codec.sparse`."""
        return codec.digest(self)


def derive(card: ModelCard, **delta: Any) -> ModelCard:
    """`card` with fields replaced. A dataclass field may be given as a dict of its own changed fields."""
    settled = {}
    for name, value in delta.items():
        current = getattr(card, name)
        nested = isinstance(value, dict) and hasattr(type(current), "__dataclass_fields__")
        settled[name] = replace(cast(Any, current), **value) if nested else value
    return replace(card, **settled)
