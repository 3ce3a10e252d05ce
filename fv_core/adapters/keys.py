"""Reads the names of an adapter's tensors, as four families of tools write them: two low-rank factors per layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from fv_core.adapters.faults import listed, unreadable

_DOWN: Final = re.compile(r"(?P<layer>.+?)\.(?:lora_A(?:\.default)?|lora_down|lora\.down)\.weight")
_UP: Final = re.compile(r"(?P<layer>.+?)\.(?:lora_B(?:\.default)?|lora_up|lora\.up)\.weight")
_ALPHA: Final = re.compile(r"(?P<layer>.+)\.alpha")
"""peft, diffusers: lora_A, lora_B. ComfyUI, kohya: lora_down, lora_up, alpha. Older diffusers: lora.down, lora.up."""

_KINDS: Final = {
    "dora_scale": "DoRA",
    "lora_magnitude_vector": "DoRA",
    "hada_": "LoHa",
    "lokr_": "LoKr",
    "lora_mid": "a Tucker decomposition",
    "lora_embedding_": "a LoRA of an embedding",
    "lora_B.bias": "a bias",
    "lora_up.bias": "a bias",
    ".diff_b": "a difference of biases",
    ".diff": "a difference of whole weights",
}
"""What else files hold, by a part of the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKeys:
    """One layer as a file names it, and the names of its tensors; `alpha` None where the file has none for it."""

    layer: str
    down: str
    up: str
    alpha: str | None


def layers_of(path: str, names: Iterable[str]) -> tuple[LayerKeys, ...]:
    """The layers of an adapter, in the order of their names.

    Raises:
        RequestError: FV322, a tensor is no part of a LoRA that fv reads, or a factor is missing or there twice.
    """
    down: dict[str, str] = {}
    up: dict[str, str] = {}
    alpha: dict[str, str] = {}
    odd = []
    for name in sorted(names):
        for pattern, found in ((_DOWN, down), (_UP, up), (_ALPHA, alpha)):
            if match := pattern.fullmatch(name):
                if match["layer"] in found:
                    raise unreadable(
                        path, f"gives layer {match['layer']} twice: {found[match['layer']]}, {name}"
                    )
                found[match["layer"]] = name
                break
        else:
            odd.append(name)
    if odd:
        raise unreadable(path, f"holds {_kind(odd[0])}, which fv does not apply: {listed(odd)}")
    if lone := sorted((down.keys() ^ up.keys()) | (alpha.keys() - down.keys())):
        raise unreadable(path, f"is not whole: one of the two factors is missing of {listed(lone)}")
    if not down:
        raise unreadable(path, "holds no tensor")
    return tuple(
        LayerKeys(layer=layer, down=down[layer], up=up[layer], alpha=alpha.get(layer))
        for layer in sorted(down)
    )


def _kind(name: str) -> str:
    return next(
        (kind for part, kind in _KINDS.items() if part in name), "a tensor that is no factor of a LoRA"
    )
