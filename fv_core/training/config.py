"""What a training is set to: a TOML file with overrides, typed and checked before anything is loaded."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from fv_core.training.tables import illegal, meant, read_table

T = TypeVar("T")


class Precision(StrEnum):
    """What the forward of a training computes in; parameters and optimizer keep fp32."""

    FP32 = "fp32"
    BF16 = "bf16"


class NotFinite(StrEnum):
    """What a loss or gradient that is not finite leads to: the run stops, or the step is left out and counted."""

    STOP = "stop"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainTable:
    """Table [train].

    Args:
        steps: optimizer steps of the run.
        batch: samples of one forward on one rank. accumulate: forwards of one optimizer step on one rank.
        lr: learning rate. lrs: of single components, by id. warmup: steps until it is reached.
        decay: the share of the run, at its end, over which it falls to 0, in [0, 1].
        betas, eps, weight_decay: of AdamW.
        clip: the most that the norm of all gradients of a step may be; 0 does not clip.
        ema: decay of the average of the weights; 0 keeps none.
        precision: fp32 or bf16 (autocast). checkpointing: computes activations twice to keep fewer.
        seed: of everything that is drawn.
        not_finite: stop or skip.
        initialise: "module:attr" of a function `(modules by component id, seed)` that fills the weights before the
            first step; "" leaves them.
    """

    steps: int = 1000
    batch: int = 1
    accumulate: int = 1
    lr: float = 1e-5
    lrs: Mapping[str, float] = field(default_factory=dict)
    warmup: int = 0
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0
    ema: float = 0.0
    precision: Precision = Precision.FP32
    checkpointing: bool = False
    seed: int = 0
    not_finite: NotFinite = NotFinite.STOP
    initialise: str = ""

    def __post_init__(self) -> None:
        for name, least in {"steps": 1, "batch": 1, "accumulate": 1, "warmup": 0, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, and {least} at least")
        for name in ("lr", "eps", "weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name)}, which is no finite number from 0 up")
        if not 0 <= self.decay <= 1:
            raise ValueError(f"decay is {self.decay}, which is not in [0, 1]")
        if not all(0 <= rate < 1 for rate in (self.ema, *self.betas)):
            raise ValueError(f"ema is {self.ema} and betas are {self.betas}, which are not all in [0, 1)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataTable:
    """Table [data]: the keys of every source; those of its kind stand beside them.

    Args:
        name: the kind of source; `fv_core.training.data.SOURCES` lists them.
        shuffle: whether each epoch has an order of its own.
        caption_dropout: how often a caption gives way to the model's negative prompt, in [0, 1]: what guidance needs.
        cache: where latents and embeddings of a method that takes them are kept: "auto" is fv's own folder, for clips
            that come from files; "off" computes them whenever they are needed; else a folder.
    """

    name: str
    shuffle: bool = True
    caption_dropout: float = 0.0
    cache: str = "auto"

    def __post_init__(self) -> None:
        if not 0 <= self.caption_dropout <= 1:
            raise ValueError(f"caption_dropout is {self.caption_dropout}, which is not in [0, 1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveTable:
    """Table [save]: the run's folder, every how many steps a checkpoint is written (0: at the end only), how many stay.

    Args:
        dir: the run's folder; relative paths are relative to the working folder.
    """

    dir: str
    every: int = 0
    keep: int = 3

    def __post_init__(self) -> None:
        if self.every < 0 or self.keep < 1:
            raise ValueError(f"every is {self.every} and keep is {self.keep}: from 0 and from 1 up")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraTable:
    """Table [lora]: low-rank factors are trained in place of whole layers.

    Args:
        rank: of the factors. alpha: their product counts alpha / rank; None is the rank.
        targets: ends of the names of layers; () is all linear layers of the blocks.
    """

    rank: int = 16
    alpha: int | None = None
    targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.rank < 1 or (self.alpha is not None and self.alpha < 1):
            raise ValueError(f"rank is {self.rank} and alpha is {self.alpha}: both from 1 up")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateTable:
    """Table [validate]: clips that the engine makes of the weights so far, in the run's folder.

    Args:
        every: how many steps lie between two validations; 0: none.
        prompts: what to show. seed: of the first one, the next ones count up.
        size: width and height in pixels. frames: of a clip. steps, guidance: of sampling. None is the model's default.
        rewards: what judges the clips, by name: `fv train --list` has them.
    """

    every: int = 0
    prompts: tuple[str, ...] = ()
    rewards: tuple[str, ...] = ()
    seed: int = 0
    size: tuple[int, int] | None = None
    frames: int | None = None
    steps: int | None = None
    guidance: float | None = None

    def __post_init__(self) -> None:
        if self.every < 0 or (self.every > 0) is not bool(self.prompts):
            raise ValueError(f"every is {self.every} and there are {len(self.prompts)} prompts: both or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeTable:
    """Table [resume]. `override` accepts settings that decide weights and are not those of the checkpoint."""

    override: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A whole training.

    Args:
        model: id of the card. weights: where they come from: "" where the card's lie, "seed" as its components are
            initialised, else a folder.
        method, data: tables of which `name` says whose they are; their other keys are read by these.
        train, validate, save, resume: as their types. lora: None trains whole layers.
        log: where figures go beside `metrics.jsonl`: "tensorboard".
    """

    model: str
    method: Mapping[str, Any]
    data: Mapping[str, Any]
    save: SaveTable
    train: TrainTable = TrainTable()
    validate: ValidateTable = ValidateTable()
    resume: ResumeTable = ResumeTable()
    weights: str = ""
    lora: LoraTable | None = None
    log: tuple[str, ...] = ()


_TABLES = {
    "train": TrainTable,
    "lora": LoraTable,
    "validate": ValidateTable,
    "save": SaveTable,
    "resume": ResumeTable,
}
_LOGS: Final = ("tensorboard",)
_REQUIRED = ("model", "method", "data", "save")


def load_config(path: Path, overrides: Mapping[str, Any] | Sequence[str] = ()) -> RunConfig:
    """The training that a file and overrides set: values by dotted key, or `table.key=value` texts.

    Raises:
        TrainError: FV701, no TOML file, or a key or value that is not legal.
    """
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise illegal(str(path), None, f"is no TOML file that can be read: {error}") from error
    given = overrides if isinstance(overrides, Mapping) else dict(map(_parsed, overrides))
    return config_of(overridden(document, given))


def overridden(document: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the values of dotted keys set.

    Raises:
        TrainError: FV701, an override of another form.
    """
    changed = deepcopy(dict(document))
    for path, value in overrides.items():
        *tables, key = path.split(".")
        place = changed
        for table in tables:
            place = place.setdefault(table, {})
            if not isinstance(place, dict):
                raise illegal("override", path, f"names a key of {table}, which is a value and no table")
        place[key] = value
    return changed


def _parsed(override: str) -> tuple[str, Any]:
    """`table.key=value` as its key and its value, which is TOML, or text where it is none."""
    path, sign, text = override.partition("=")
    if not sign or not all(path.split(".")):
        raise illegal("override", override, "is not of the form table.key=value")
    try:
        return path, tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return path, text


def config_of(document: Mapping[str, Any]) -> RunConfig:
    """Raises:
    TrainError: FV701.
    """
    for name in document:
        if name not in RunConfig.__slots__:
            raise illegal(name, None, f"is no key or table of a training{meant(name, RunConfig.__slots__)}",
                          legal=", ".join(RunConfig.__slots__))  # fmt: skip
    for name in _REQUIRED:
        if name not in document:
            raise illegal(name, None, "is not set", legal=", ".join(_REQUIRED))
    settled: dict[str, Any] = dict(document)
    for name, value in document.items():
        if name in ("model", "weights"):
            if not isinstance(value, str):
                raise illegal(name, value, "is not text")
        elif name == "log":
            settled[name] = _logs(value)
        elif not isinstance(value, dict):
            raise illegal(name, value, "is not a table")
        elif name in _TABLES:
            settled[name] = read_table(_TABLES[name], value, name=name)
    for name in ("method", "data"):
        if not isinstance(settled[name].get("name"), str):
            raise illegal(f"{name}.name", settled[name].get("name"), "is not set to a text")
    return RunConfig(**settled)


def _logs(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or any(one not in _LOGS for one in value):
        raise illegal("log", value, "is no list of these", legal=", ".join(_LOGS))
    return tuple(dict.fromkeys(value))


def split(table: Mapping[str, Any], common: type[T], *, name: str) -> tuple[T, dict[str, Any]]:
    """What a table says to every kind, and the keys that its own kind reads.

    Raises:
        TrainError: FV701.
    """
    keys = [field.name for field in fields(common)]  # type: ignore[arg-type]
    told = read_table(common, {key: table[key] for key in keys if key in table}, name=name)
    return told, {key: value for key, value in table.items() if key not in keys}
