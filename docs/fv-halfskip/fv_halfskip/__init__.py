"""The plugin as fv sees it: the API it was written for and its hook. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from fv_core import InterceptorSpec, hookimpl

fv_api = 1


@hookimpl
def fv_interceptors() -> Iterable[InterceptorSpec]:
    """The interceptors of this plugin; off until an engine names them."""
    return (
        InterceptorSpec(
            id="halfskip/every-other",
            loop_kinds=("flow_denoise",),
            distribution_altering=True,  # so that requests that promise the model's bits refuse it
            params="fv_halfskip.skip:Params",
            factory="fv_halfskip.skip:EveryOther",
        ),
    )
