"""The kit for plugin authors: `pytest_plugins = ["fv_core.testing"]` in a top-level conftest switches it on.

Subclass `CardConformance`, set `card_id`, and inherit its tests. Fixtures: `registry` and `fake_dist`.
"""

from fv_core.testing.conformance import CardConformance
from fv_core.testing.dists import FakeDist, fake_dist, registry

__all__ = ["CardConformance", "FakeDist", "fake_dist", "registry"]
