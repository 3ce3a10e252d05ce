"""Every document of `--json` has a schema, pinned here: what it holds may grow only together with this file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fv_core.cli.main import VERBS

Fv = Callable[..., Any]

TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
NUMBER = {"type": "number"}
FLAG = {"type": "boolean"}


def record(**fields: Any) -> dict[str, Any]:
    """An object of exactly these fields."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def several(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def maybe(kind: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [kind, {"type": "null"}]}


def mapping(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


CODE = {"type": "string", "pattern": "^FV[0-9]{3}$"}
STATE = {"enum": ["discovered", "ready", "blocked", "conflict", "incompatible", "broken", "invalid"]}
DETAILS = record(name=TEXT, value=maybe(TEXT), rule=TEXT, legal=TEXT)
ERROR = record(code=CODE, type=TEXT, message=TEXT, hint=TEXT, details=DETAILS)
FOUND = record(code=CODE, type=TEXT, message=TEXT, hint=TEXT, details=DETAILS, place=maybe(TEXT))
PLUGIN = record(
    name=TEXT, module=TEXT, dist=TEXT, version=TEXT, location=TEXT, editable=FLAG, state=STATE,
    code={"anyOf": [CODE, {"const": ""}]}, reason=TEXT, remedy=TEXT,
    provides=several(record(kind={"enum": ["card", "interceptor"]}, id=TEXT)),
)  # fmt: skip
MODEL = record(
    id=TEXT,
    tasks=several(TEXT),
    parameters=WHOLE,
    weight_bytes=WHOLE,
    weights=TEXT,
    summary=TEXT,
    digest=TEXT,
)
EXPLAINED = record(code=CODE, title=TEXT, exit_code=WHOLE, http_status=WHOLE, type=TEXT, explanation=TEXT)
ENV = record(
    fv=TEXT, python=TEXT, platform=TEXT, versions=mapping(TEXT),
    devices=several(record(name=TEXT, hardware=TEXT, free_bytes=WHOLE, total_bytes=WHOLE)),
    threads=maybe(WHOLE), torch_error=maybe(TEXT),
    paths=several(record(name=TEXT, path=TEXT, bytes=maybe(WHOLE))),
    plugins=several(record(name=TEXT, dist=TEXT, version=TEXT, state=STATE, reason=TEXT)),
    variables=mapping(TEXT),
)  # fmt: skip
GATE = record(model=TEXT, gate=TEXT, state=TEXT, figure=WHOLE, of=WHOLE, counted=TEXT, detail=TEXT)
SIZE = record(width=WHOLE, height=WHOLE)
PLAIN = {"type": ["number", "string", "boolean"]}
REQUEST = record(
    model=TEXT, task=TEXT, prompt=TEXT, negative_prompt=TEXT, seed=WHOLE, size=SIZE, frames=WHOLE, fps=NUMBER,
    steps=WHOLE, guidance=NUMBER, numerics=TEXT, params=mapping(PLAIN),
    inputs=several(record(modality=TEXT, path=TEXT, sha256=TEXT)), keep=several(TEXT), adjusted=several(TEXT),
)  # fmt: skip
PLAN = record(
    request=REQUEST, seeds=several(WHOLE), outputs=several(TEXT), device=TEXT, dtype=TEXT, steps=WHOLE,
    weights=maybe(TEXT), weights_missing=maybe(TEXT), weight_bytes=mapping(WHOLE), working_bytes=mapping(WHOLE),
    peak_bytes=WHOLE, peak_bytes_offloaded=WHOLE, free_bytes=WHOLE, offload=TEXT,
)  # fmt: skip
ENVIRONMENT = record(
    device=TEXT, device_name=TEXT, instructions=TEXT, threads=WHOLE, platform=TEXT, versions=mapping(TEXT),
    processor=TEXT, settings=mapping(TEXT),
)  # fmt: skip
CLIP = record(
    path=maybe(TEXT), action=maybe(TEXT), text=maybe(TEXT), sidecar=maybe(TEXT),
    model=TEXT, card_digest=TEXT, plugin=TEXT, weights=TEXT, seed=WHOLE, size=SIZE,
    frames=WHOLE, fps=NUMBER, steps=WHOLE, guidance=NUMBER, sampler=TEXT, numerics=TEXT, dtype=TEXT,
    params=mapping(PLAIN), extensions=several(TEXT), environment=ENVIRONMENT, environment_hash=TEXT, seconds=NUMBER,
    adjusted=several(TEXT),
)  # fmt: skip
WEIGHTS = record(
    model=TEXT, repo=TEXT, revision=maybe(TEXT), bytes=maybe(WHOLE), path=maybe(TEXT), reason=maybe(TEXT)
)
BROKEN = record(plugin=TEXT, dist=TEXT, version=TEXT, error=ERROR)
VERDICT = record(id=TEXT, ok=FLAG, findings=several(ERROR))
SETTING = record(name=TEXT, value={"type": ["null", "boolean", "number", "string", "array"]}, origin=TEXT)

SMALL = ("--size", "16x16", "--frames", "1", "--steps", "1")

DOCUMENTS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "plugins": (("plugins",), record(plugins=several(PLUGIN))),
    "plugins --check": (("plugins", "--check"), record(plugins=several(PLUGIN))),
    "plugins show": (
        ("plugins", "show", "few-steps"),
        record(plugin=PLUGIN, findings=several(ERROR), traceback=maybe(TEXT)),
    ),
    "plugins check": (
        ("plugins", "check", str(Path(__file__).parents[2] / "tests/dists/few_steps")),
        record(plugins=several(PLUGIN), ok=FLAG, findings=several(FOUND), gates=several(GATE)),
    ),
    "plugins check of a good one": (
        ("plugins", "check", str(Path(__file__).parents[2] / "tests/dists/good")),
        record(plugins=several(PLUGIN), ok=FLAG, findings=several(FOUND), gates=several(GATE)),
    ),
    "models": (("models",), record(models=several(MODEL), broken=several(BROKEN))),
    "validate": (("validate", "--all"), record(ok=FLAG, cards=several(VERDICT))),
    "config": (("config",), record(settings=several(SETTING))),
    "env": (("env",), ENV),
    "explain": (("explain",), record(codes=several(EXPLAINED))),
    "explain CODE": (("explain", "FV201"), EXPLAINED),
    "weights list": (("weights", "list"), record(weights=several(WEIGHTS))),
    "generate --dry-run": (("generate", "a cat", "--dry-run", *SMALL), PLAN),
    "generate": (("generate", "a cat", *SMALL), record(clips=several(CLIP), notices=several(TEXT))),
    "an error": (("generate", "a cat", "--steps", "0"), record(error=ERROR)),
}


@pytest.mark.usefixtures("forget")
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_as_its_schema_says(name: str, fv: Fv, install_dists: Callable[..., Path]) -> None:
    install_dists("few_steps", "good", "twin_a", "twin_b")
    arguments, schema = DOCUMENTS[name]
    told = fv(*arguments, "--json")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(told.json, schema)
    assert told.out.count("\n") == 1


def test_every_verb_has_a_document() -> None:
    assert {arguments[0] for arguments, _ in DOCUMENTS.values()} >= VERBS.keys() - {"parity"}
