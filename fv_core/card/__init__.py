"""Cards: typed, validated (recipe, runtime) pairs. Free of torch and numpy."""

from fv_core.card.card import (
    IMPLEMENTED,
    LADDER,
    CheckpointManifest,
    Defaults,
    LatentSpec,
    Limits,
    LoopSpec,
    Method,
    ModelCard,
    ParitySpec,
    Precision,
    Provenance,
    RecipeSpec,
    Rung,
    SigmaRule,
    derive,
)
from fv_core.card.component import AdapterNames, ComponentSpec, Geometry, LoadContext
from fv_core.card.limits import FrameRule, ParamRule, SizeRule
from fv_core.card.validate import validate

__all__ = [
    "IMPLEMENTED",
    "LADDER",
    "AdapterNames",
    "CheckpointManifest",
    "ComponentSpec",
    "Defaults",
    "FrameRule",
    "Geometry",
    "LatentSpec",
    "Limits",
    "LoadContext",
    "LoopSpec",
    "Method",
    "ModelCard",
    "ParamRule",
    "ParitySpec",
    "Precision",
    "Provenance",
    "RecipeSpec",
    "Rung",
    "SigmaRule",
    "SizeRule",
    "derive",
    "validate",
]
