"""The kit for plugin authors: `pytest_plugins = ["fv_core.testing"]` in a top-level conftest switches it on.

Subclass `CardConformance` or `InterceptorConformance`, say which one, and inherit the tests. Fixtures: `registry` and
`fake_dist`, `tiny_card` and `engine`.
"""

from fv_core.testing.conformance import CardConformance
from fv_core.testing.dists import FakeDist, fake_dist, registry
from fv_core.testing.fixtures import engine, tiny_card
from fv_core.testing.interceptors import InterceptorConformance

__all__ = [
    "CardConformance",
    "FakeDist",
    "InterceptorConformance",
    "engine",
    "fake_dist",
    "registry",
    "tiny_card",
]
