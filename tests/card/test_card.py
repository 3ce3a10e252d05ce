"""Cards are values: lossless JSON, a digest that every field moves, variants by derivation."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fv_core import codec
from fv_core.card import (
    CheckpointManifest,
    ComponentSpec,
    Defaults,
    LatentSpec,
    Limits,
    LoopSpec,
    Method,
    ModelCard,
    ParamRule,
    ParitySpec,
    Precision,
    RecipeSpec,
    SigmaRule,
    derive,
)
from fv_core.parallel import Axis, ParallelPlan
from fv_core.program import Compare, ComponentNode, LoopNode, Program, When
from fv_core.request import Size, TaskType

words = st.text(max_size=6)
numbers = st.floats(allow_nan=False)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), numbers, words),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(words, inner, max_size=2)),
    max_leaves=4,
)
params = st.dictionaries(words, st.one_of(numbers, st.integers(), words, st.booleans()), max_size=2)
slots = st.dictionaries(words, words, max_size=2)
whens = st.none() | st.builds(When, field=words, compare=st.sampled_from(Compare), value=numbers)
nodes = st.one_of(
    st.builds(
        ComponentNode, id=words, label=words, component=words, op=words, reads=slots, writes=slots, when=whens
    ),
    st.builds(LoopNode, id=words, label=words, loop=words, reads=slots, writes=slots, when=whens),
)
plans = st.builds(ParallelPlan, axes=st.dictionaries(st.sampled_from(Axis), st.integers(), max_size=2))
cards = st.builds(
    ModelCard,
    model_id=words,
    family=words,
    version=words,
    components=st.dictionaries(
        words,
        st.builds(ComponentSpec, load=words, config=st.dictionaries(words, plain, max_size=2), params=params),
        max_size=2,
    ),
    loops=st.dictionaries(
        words, st.builds(LoopSpec, loop=words, semantics=words, binds=slots, params=params), max_size=2
    ),
    programs=st.dictionaries(
        st.sampled_from(TaskType), st.builds(Program, nodes=st.lists(nodes, max_size=3).map(tuple), artifacts=slots)
    ),
    recipe=st.builds(
        RecipeSpec,
        assumes_loop=words,
        method=st.sampled_from(Method),
        steps=st.integers(),
        sigma_rule=st.sampled_from(SigmaRule),
        shift=numbers,
        guidance=numbers,
    ),
    parity=st.none() | st.builds(ParitySpec, reference=words, reference_version=words, tolerance=numbers),
    checkpoint=st.none() | st.builds(CheckpointManifest, repo=words, revision=st.none() | words),
    defaults=st.builds(Defaults, size=st.builds(Size, st.integers(), st.integers()), fps=numbers),
    params=st.dictionaries(words, st.builds(ParamRule, doc=words, default=st.none() | numbers), max_size=2),
    parallelism=st.lists(plans, max_size=2).map(tuple),
)  # fmt: skip


@settings(max_examples=60)
@given(cards)
def test_json_gives_an_equal_card_back(card: ModelCard) -> None:
    again = ModelCard.from_json(card.to_json())
    assert again == card
    assert (again.to_json(), again.digest()) == (card.to_json(), card.digest())


CHANGES: dict[str, Any] = {
    "model_id": "toy/other",
    "family": "other",
    "version": "2",
    "components": {},
    "loops": {},
    "programs": {},
    "recipe": {"steps": 21},
    "summary": "another",
    "parity": ParitySpec(reference="x", reference_version="1"),
    "checkpoint": CheckpointManifest(repo="x"),
    "latent": LatentSpec(channels=8),
    "precision": Precision(cpu="bfloat16"),
    "parallelism": (ParallelPlan(axes={Axis.DP: 2}),),
    "defaults": Defaults(frames=5),
    "limits": Limits(steps=(1, 20)),
    "params": {},
    "weights": "package:folder",
    "caches": "module:attr",
}


def test_every_field_moves_the_digest(card: ModelCard) -> None:
    assert CHANGES.keys() == {field.name for field in fields(card)}
    digests = [derive(card, **{name: value}).digest() for name, value in CHANGES.items()]
    assert len({card.digest(), *digests}) == len(CHANGES) + 1


def test_json_of_an_earlier_version_is_the_same_card(card: ModelCard) -> None:
    stored = json.loads(card.to_json())
    del stored["parallelism"], stored["limits"]["frames"], stored["programs"]["t2v"]["nodes"][0]["when"]
    earlier = ModelCard.from_json(json.dumps(stored))
    assert (earlier, earlier.digest()) == (card, card.digest())


def test_digest_does_not_depend_on_the_order_of_mappings(card: ModelCard) -> None:
    turned = derive(card, components=dict(reversed(list(card.components.items()))))
    assert turned.digest() == card.digest()


def test_derive_takes_a_dict_as_changes_of_a_nested_field(card: ModelCard) -> None:
    derived = derive(card, recipe={"steps": 4, "steps_fixed": True}, summary="few steps")
    assert derived.recipe == replace(card.recipe, steps=4, steps_fixed=True)
    assert derived.summary == "few steps"
    assert derive(card, recipe={}) == card
    with pytest.raises(TypeError):
        derive(card, recipe={"tempo": 1})


def test_a_card_is_frozen(card: ModelCard) -> None:
    with pytest.raises(FrozenInstanceError):
        card.version = "2"  # type: ignore[misc]


def test_json_of_another_shape_is_refused(card: ModelCard) -> None:
    stored = json.loads(card.to_json())
    without_recipe = {name: value for name, value in stored.items() if name != "recipe"}
    refused: list[Any] = [{**stored, "tempo": 1}, without_recipe, [], {"type": "Card"}]
    for broken in refused:
        with pytest.raises(codec.DecodeError):
            ModelCard.from_json(json.dumps(broken))


def test_geometry_counts_latent_cells(card: ModelCard) -> None:
    geometry = card.geometry(Size(832, 480), 81)
    assert (geometry.width, geometry.height, geometry.frames) == (832, 480, 81)
    assert geometry.latent == (16, 21, 60, 104)
    assert card.geometry(Size(16, 32), 1).latent == (16, 1, 4, 2)


def test_default_of_a_parameter_is_its_own_or_the_recipes_fact(card: ModelCard) -> None:
    assert card.param_default("shift") == 3.0
    assert derive(card, params={"shift": ParamRule(doc="x", default=2.0)}).param_default("shift") == 2.0
