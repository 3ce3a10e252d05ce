"""Switches interceptors on for an engine: finds them, reads their parameters, keeps them out of exact requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, TypeAlias

from fv_core.card import ModelCard
from fv_core.errors import CardError, PluginError, RequestError
from fv_core.extend import Interceptor, InterceptorSpec
from fv_core.extend.chain import Enabled
from fv_core.loop.params import Misfit, schema, settle
from fv_core.loop.work import WorkKind
from fv_core.plugins import find_interceptor
from fv_core.plugins.reference import resolve_reference
from fv_core.request import Numerics

Extension: TypeAlias = (
    "str | InterceptorSpec | tuple[str | InterceptorSpec, Mapping[str, float | int | str | bool]]"
)
"""An interceptor by id or spec, alone or with parameters."""


def enable(extensions: str | InterceptorSpec | Sequence[Extension]) -> tuple[Enabled, ...]:
    """The interceptors, in the order they are named; one id or spec alone is one of them.

    Raises:
    PluginError: FV107 unknown id, FV104 a record that is wrong, FV105 a reference does not resolve.
    RequestError: FV318, parameters that the interceptor does not declare; FV316, one is named twice: they would
        share a state; or something names none.
    """
    named = (extensions,) if isinstance(extensions, (str, InterceptorSpec)) else extensions
    if not isinstance(named, Sequence):
        raise RequestError(
            "FV316",
            name="extensions",
            value=named,
            rule="names no interceptors",
            legal="an id or a spec, or a list of them",
            remedy="Leave it out for none.",
        )
    enabled = tuple(_enable(extension) for extension in named)
    ids = [one.spec.id for one in enabled]
    for ident in ids:
        if ids.count(ident) > 1:
            raise RequestError(
                "FV316",
                name="extensions",
                value=ident,
                rule="is named twice",
                remedy="Name each interceptor once; the order of the list is the order they run in.",
            )
    return enabled


def check_extensions(enabled: Sequence[Enabled], card: ModelCard, numerics: Numerics) -> None:
    """Whether the interceptors may alter a request for this card: as `check_recipe` and `check_numerics`."""
    check_recipe(enabled, card)
    check_numerics(enabled, numerics)


def check_numerics(enabled: Sequence[Enabled], numerics: Numerics) -> None:
    """Raises:
    RequestError: FV314, an interceptor alters the distribution and the numerics promise bits.
    """
    altering = [one.spec.id for one in enabled if one.spec.distribution_altering]
    if altering and numerics is not Numerics.FAST:
        raise RequestError(
            "FV314",
            name="numerics",
            value=numerics.value,
            rule=f"promises the plain model's bits, which {', '.join(altering)} alters",
            legal=Numerics.FAST.value,
            remedy="Ask for numerics fast, or run on an engine without these interceptors.",
        )


def check_recipe(enabled: Sequence[Enabled], card: ModelCard) -> None:
    """Raises:
    CardError: FV214, an interceptor may skip steps and the weights were distilled to exactly as many as they have.
    """
    skipping = [
        one.spec.id for one in enabled if one.may_skip and WorkKind.FLOW_DENOISE in one.spec.loop_kinds
    ]
    if skipping and card.recipe.steps_fixed:
        raise CardError(
            "FV214",
            name=f'card "{card.model_id}": recipe.steps',
            value=card.recipe.steps,
            rule=f"is fixed, and {', '.join(skipping)} may skip some of them",
            legal="interceptors that compute every step",
            remedy="Run the model on an engine without these interceptors.",
        )


def _enable(extension: Extension) -> Enabled:
    named, given = extension if isinstance(extension, tuple) and len(extension) == 2 else (extension, {})
    if not isinstance(named, (str, InterceptorSpec)) or not isinstance(given, Mapping):
        raise RequestError(
            "FV316",
            name="extensions",
            value=extension,
            rule="names no interceptor",
            legal="ids or specs, each alone or with its parameters: ('id', {'name': 1})",
            remedy="Give a list: extensions=['id', ('other', {'name': 1})].",
        )
    spec = find_interceptor(named) if isinstance(named, str) else named
    owner = f"interceptor {spec.id}"
    for fault in spec.faults():
        raise _broken(spec, fault)
    params = _params(spec, resolve_reference(spec.params, owner=owner), given)
    return Enabled(
        spec=spec, interceptor=_made(spec, resolve_reference(spec.factory, owner=owner)), params=params
    )


def _params(spec: InterceptorSpec, kind: Any, given: Mapping[str, float | int | str | bool]) -> Any:
    if not is_dataclass(kind) or not isinstance(kind, type):
        raise _broken(spec, f"{spec.params} is not a dataclass of parameters")
    try:
        settle(kind, {})
    except Misfit as misfit:
        raise _broken(spec, f"its parameters have no legal defaults: {misfit.rule}") from misfit
    try:
        return settle(kind, given)
    except Misfit as misfit:
        raise RequestError(
            "FV318",
            name=f"interceptor {spec.id}: parameter{f' {misfit.name}' if misfit.name else 's'}",
            value=misfit.value,
            rule=misfit.rule,
            legal=schema(kind),
            remedy="Correct it, or leave it out for its default.",
        ) from misfit


def _made(spec: InterceptorSpec, factory: Any) -> Interceptor[Any, Any]:
    if not isinstance(factory, type) or not issubclass(factory, Interceptor):
        raise _broken(spec, f"{spec.factory} is not a class of interceptors")
    try:
        factory.state_type()
        made: Interceptor[Any, Any] = factory()
    except Exception as error:  # whatever the code of a plugin raises
        raise _broken(spec, f"{spec.factory} cannot be made: {type(error).__name__}: {error}") from error
    return made


def _broken(spec: InterceptorSpec, rule: str) -> PluginError:
    """FV104: an interceptor is not what its record says."""
    return PluginError("FV104", name=f"interceptor {spec.id}", rule=rule, remedy="Report it to its author.")
