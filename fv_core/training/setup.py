"""What a run's settings are made into: the model, the method and the data, before anything is trained."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import nn

from fv_core import codec
from fv_core.card import ModelCard, derive
from fv_core.errors import TrainError
from fv_core.plugins import find_card
from fv_core.plugins.reference import resolve_reference
from fv_core.runtime.engine import Engine
from fv_core.training.config import DataTable, RunConfig, split
from fv_core.training.contract import DataContext, Method, MethodContext, Reward, Source
from fv_core.training.data.encoder import Encoder
from fv_core.training.data.opening import Data, open_data
from fv_core.training.lora import attach
from fv_core.training.model import TrainedModel
from fv_core.training.offered import check_loops, find_method, made_rewards
from fv_core.training.tables import illegal, meant, read_table
from fv_core.training.tensorboard import require_tensorboard

SEED: Final = "seed"
"""What `weights` says for a model that begins as its components are initialised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A run that is ready to begin.

    Args:
        engine: that the model is resident in.
        data: its samples. table: how they are used.
        total: samples of an optimizer step.
        rewards: what judges the clips of a validation, by name.
        resolved: every setting as plain JSON, defaults included: what a checkpoint keeps to compare with.
    """

    engine: Engine
    model: TrainedModel
    method: Method
    data: Data
    table: DataTable
    total: int
    rewards: Mapping[str, Reward]
    resolved: Mapping[str, Any]


def set_up(
    config: RunConfig,
    *,
    ranks: int = 1,
    folder: Path | None = None,
    card: ModelCard | None = None,
    source: Source | None = None,
) -> Setup:
    """Makes a run ready.

    Args:
        folder: what paths of the data are relative to; None: the working folder.
        card: the model, in place of the installed one of that id.
        source: samples to take in place of those that [data] names.

    Raises:
        TrainError: FV701 a setting is not legal, FV704 the model cannot be trained so, FV706 a library is missing.
        FvError: the model or its weights cannot be loaded.
    """
    if config.log:
        require_tensorboard()
    card = card or find_card(config.model)
    spec = find_method(config.method["name"])
    check_loops(spec, card)
    if config.weights == SEED:
        card = derive(card, checkpoint=None, weights="")
    elsewhere = config.weights if config.weights not in ("", SEED) else None
    engine = Engine([card], weights=elsewhere, dtype="float32")
    model = TrainedModel(engine.instance(card.model_id))
    total = config.train.batch * config.train.accumulate * ranks
    factory = resolve_reference(spec.factory, owner=f"method {spec.id}")
    _, own = split(config.method, _Named, name="method")
    method_config = read_table(factory.Config, own, name="method")
    method: Method = factory(method_config, MethodContext(model=model, seed=config.train.seed, total=total))
    rewards = made_rewards(config.validate.rewards, config.validate.prompts)
    data, own = split(config.data, DataTable, name="data")
    data_config: object = own
    if source is None:
        kind = source_module(data.name)
        data_config = read_table(kind.Config, own, name="data")
        context = DataContext(
            card=card, content=method.content, seed=config.train.seed, folder=folder or Path.cwd()
        )
        opened = open_data(
            kind.build(data_config, context), data, method, context, lambda: Encoder(model.instance)
        )
    else:
        opened = Data(source=source)
    if config.train.initialise:
        _initialise(config, method)
    if config.lora is not None:
        for name, module in _trained(method).items():
            attach(name, module, config.lora, config.train.seed)
    if config.train.checkpointing:
        _checkpoint(method)
    resolved = {
        "model": config.model,
        "weights": config.weights,
        "method": {"name": config.method["name"], **_plain(method_config)},
        "data": {**_plain(data), **_plain(data_config), "digest": opened.digest},
        **{name: _plain(getattr(config, name)) for name in ("train", "validate", "save", "resume")},
        "lora": None if config.lora is None else _plain(config.lora),
        "log": list(config.log),
        "total": total,
    }
    return Setup(
        engine=engine,
        model=model,
        method=method,
        data=opened,
        table=data,
        total=total,
        rewards=rewards,
        resolved=resolved,
    )


def source_module(name: str) -> Any:
    """The module of a kind of source.

    Raises:
        TrainError: FV701, there is none of this name.
    """
    from fv_core.training.data import SOURCES

    if name not in SOURCES:
        raise illegal(
            "data.name", name, f"is no kind of data{meant(name, SOURCES)}", legal=", ".join(SOURCES)
        )
    return importlib.import_module(SOURCES[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    name: str


def _initialise(config: RunConfig, method: Method) -> None:
    fill = resolve_reference(config.train.initialise, owner="train.initialise")
    fill(_trained(method), config.train.seed)


def _trained(method: Method) -> dict[str, nn.Module]:
    """The modules that the method trains, by component id."""
    return {name: module for role in method.roles().values() for name, module in role.items()}


def _checkpoint(method: Method) -> None:
    """Has activations computed again in the backward pass, as diffusers' models can. Those of transformers do so in
    training mode alone, which fv does not train in, for dropout would come with it.
    """
    for name, module in _trained(method).items():
        enable = getattr(module, "enable_gradient_checkpointing", None)
        try:
            if enable is not None:
                enable()
                continue
        except ValueError:  # diffusers' answer where a class has none
            pass
        raise TrainError(
            "FV704",
            name="train.checkpointing",
            value=name,
            rule=f"is a {type(module).__name__}, which has no checkpointing of activations in evaluation mode",
            remedy="Leave train.checkpointing out.",
        )


def _plain(settings: object) -> dict[str, Any]:
    """Settings as plain JSON, without the name of their type."""
    encoded = codec.encode(settings)
    assert isinstance(encoded, dict)
    return {name: value for name, value in encoded.items() if name != "type"}
