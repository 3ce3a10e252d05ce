"""An engine on the tiny Wan card, requests that run in milliseconds, and a watch over what components compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from fv_core.request import OutputSpec, Request

if TYPE_CHECKING:
    from fv_core import Engine

MODEL = "wan21/tiny"

settings.register_profile("fixed", derandomize=True, deadline=None)  # the same examples in every run
settings.load_profile("fixed")


@pytest.fixture
def engine() -> Iterator[Engine]:
    """A new engine on the CPU, one thread: bits depend on the number of threads."""
    import torch  # tests of what loads no torch share this file

    from fv_core import Engine

    torch.set_num_threads(1)
    with Engine([MODEL], device="cpu") as made:
        yield made


@pytest.fixture
def ask() -> Callable[..., Request]:
    """A small request; keywords replace its fields. Latent and video are kept for comparison."""

    def request(**fields: Any) -> Request:
        small: dict[str, Any] = {
            "prompt": "a red circle", "seed": 1, "size": (16, 16), "frames": 5, "steps": 2, "guidance": 3.0,
            "output": OutputSpec(keep=("latent", "video")),
        }  # fmt: skip
        return Request(**{**small, **fields})

    return request


@dataclass(frozen=True, kw_only=True)
class Forward:
    """One forward: how many calls shared it, and their rows."""

    component: str
    op: str
    rows: list[dict[str, Any]]


@dataclass(kw_only=True)
class Watch:
    """Records every forward of an engine's components; `before` and `after` may act in the middle of it."""

    forwards: list[Forward] = field(default_factory=list)
    before: Callable[[Forward], None] = lambda forward: None
    after: Callable[[Forward, list[Any]], list[Any]] = lambda forward, outputs: outputs

    def of(self, component: str) -> list[Forward]:
        return [forward for forward in self.forwards if forward.component == component]

    def sizes(self, component: str) -> list[int]:
        """How many calls shared each forward."""
        return [len(forward.rows) for forward in self.of(component)]

    def put_on(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        instance = engine.instance(MODEL)
        for name in instance.card.components:
            component = instance.component(name)
            monkeypatch.setattr(component, "forward_batch", self._wrapped(name, component.forward_batch))

    def _wrapped(self, name: str, forward_batch: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
        def watched(op: str, calls: Sequence[Any]) -> list[Any]:
            forward = Forward(component=name, op=op, rows=[dict(call.rows) for call in calls])
            self.forwards.append(forward)
            self.before(forward)
            return self.after(forward, forward_batch(op, calls))

        return watched


@pytest.fixture
def watch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """A watch over the components of `engine`, all loaded."""
    made = Watch()
    made.put_on(engine, monkeypatch)
    return made
