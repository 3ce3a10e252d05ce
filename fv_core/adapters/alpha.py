"""What a file says of the strength of its layers: alpha and rank, stated by peft's config or in diffusers' metadata."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from fv_core.adapters.faults import unreadable
from fv_core.adapters.files import AdapterFile, json_object

_METADATA: Final = "lora_adapter_metadata"
_PLAIN: Final = re.compile(r"\^?[\w.-]+")
_PEFT: Final = "base_model.model."


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """How much a layer's product counts: scale * alpha / rank, or / sqrt(rank) for rank-stabilised LoRA."""

    alpha: float
    rank: int
    stabilised: bool = False

    def scaling(self, scale: float) -> float:
        """In peft's order of operations, which decides bits."""
        return scale * self.alpha / (math.sqrt(self.rank) if self.stabilised else self.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One `LoraConfig` of peft, of the layers whose names begin with `prefix`."""

    path: str
    prefix: str
    values: Mapping[str, Any]

    def strength(self, layer: str, rank: int) -> Strength:
        """Of a layer, by its name after the prefix.

        Args:
            rank: of its tensors.

        Raises:
            RequestError: FV322, the config says something else or nothing that can be read.
        """
        told, alpha = (
            self._value("rank_pattern", "r", layer),
            self._value("alpha_pattern", "lora_alpha", layer),
        )
        if told != rank:
            raise unreadable(
                self.path, f"contradicts itself: layer {layer} has rank {rank}, its config says {told}"
            )
        return Strength(alpha=alpha, rank=rank, stabilised=bool(self.values.get("use_rslora")))

    def _value(self, patterns: str, general: str, layer: str) -> Any:
        own = self.values.get(patterns) or {}
        for name in own:
            if not _PLAIN.fullmatch(name):
                raise unreadable(self.path, f"has a {patterns} that is no plain name: {name!r}")
        found = next((own[name] for name in own if _names(name, layer)), self.values.get(general))
        if isinstance(found, bool) or not isinstance(found, (int, float)) or not math.isfinite(found):
            raise unreadable(self.path, f"has a config whose {general} is {found!r}")
        return found


def configs_of(file: AdapterFile) -> tuple[Config, ...]:
    """What peft's config beside the tensors, or diffusers' metadata in their header, say.

    Raises:
        RequestError: FV322, it cannot be read, or says what fv does not apply.
    """
    if (settings := file.settings()) is not None:
        return (_checked(Config(path=file.path, prefix=_PEFT, values=settings)),)
    if (text := file.metadata().get(_METADATA)) is None:
        return ()
    told = json_object(file.path, text)
    prefixes = {name.removesuffix("r") for name in told if name == "r" or name.endswith(".r")}
    return tuple(
        _checked(
            Config(
                path=file.path,
                prefix=prefix,
                values={name.removeprefix(prefix): told[name] for name in told if name.startswith(prefix)},
            )
        )
        for prefix in sorted(prefixes, key=len, reverse=True)
    )


def needs_config(layer: str) -> bool:
    """Whether peft named the layer, whose tensors say nothing without its config."""
    return layer.startswith(_PEFT)


def _checked(config: Config) -> Config:
    values = config.values
    kind = values.get("peft_type", "LORA")
    for name in (
        "use_dora",
        "fan_in_fan_out",
        "modules_to_save",
        "lora_bias",
        "use_qalora",
        "alora_invocation_tokens",
    ):
        if values.get(name):
            raise unreadable(config.path, f"has a config with {name}, which fv does not apply")
    if kind != "LORA" or values.get("bias", "none") != "none":
        raise unreadable(
            config.path, f"has a config of {kind} with bias {values.get('bias')!r}, not of a plain LoRA"
        )
    for name in ("rank_pattern", "alpha_pattern"):
        if not isinstance(values.get(name) or {}, dict):
            raise unreadable(config.path, f"has a config whose {name} is {json.dumps(values[name])}")
    return config


def _names(pattern: str, layer: str) -> bool:
    """Whether a plain name of a pattern is that of the layer: whole, or its end unless `^` stands before it."""
    name = pattern.removeprefix("^")
    return layer == name or (name == pattern and layer.endswith(f".{name}"))
