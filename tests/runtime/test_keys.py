"""What a result is found by and what shares a forward: every field is read where it changes, and requests that differ
in one field share only what leaves their solo results as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fv_core import Adapter, Engine, Request, derive
from fv_core.cache import CacheKey, CacheRef
from fv_core.loop import CacheMode, CacheUse, CallOutput, ComponentOutput
from fv_core.media import Clip
from fv_core.plugins import find_card
from fv_core.request import Numerics, OutputSpec
from fv_core.runtime.execution import calls as calls_module
from fv_core.runtime.execution.calls import Call, Task, Work
from fv_core.runtime.execution.executor import execute
from fv_core.runtime.execution.features import result_key, stored
from fv_core.runtime.gain import Always
from fv_core.testing.adapters import factors, write_adapter

MODEL = "wan21/micro"
SMALL: dict[str, Any] = {
    "prompt": "a red circle", "seed": 1, "size": (16, 16), "frames": 5, "steps": 2, "guidance": 3.0,
    "output": OutputSpec(keep=("latent", "video")),
}  # fmt: skip
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def lone(one_thread: None) -> Iterator[Engine]:
    """Where nothing is shared."""
    with Engine([MODEL], device="cpu", max_batch=1, reuse=False) as engine:
        yield engine


@pytest.fixture(scope="module")
def files(lone: Engine, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Adapters by name, those of the text encoder with "text"."""
    folder, made = tmp_path_factory.mktemp("adapters"), {}
    for seed, (name, component) in enumerate(
        {"one": "transformer", "other": "transformer", "text": "text"}.items()
    ):
        layers = factors(lone.instance(MODEL).component(component).module, seed=seed)
        prefix = "text_encoder." if component == "text" else "transformer."
        made[name] = str(write_adapter(folder / f"{name}.safetensors", layers, prefix=prefix))
    return made


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine([MODEL], device="cpu", gain=Always()) as engine:
        yield engine


def first_work(engine: Engine, **changed: Any) -> Work:
    """The first step of a small request, which encodes its prompt."""
    work = engine.start(Request(**{**SMALL, **changed})).work()
    assert work is not None
    return work


def key_of(work: Work, **changed: Any) -> CacheKey:
    key = result_key(replace(work.plan.calls[0], **changed), work)
    assert key is not None
    return key


def elsewhere(**options: Any) -> CacheKey:
    """The key of the same call on an engine of its own."""
    with Engine(**{"models": [MODEL], "device": "cpu", **options}) as made:
        return key_of(first_work(made))


def appending(work: Work, *content: torch.Tensor) -> tuple[CacheUse, ...]:
    """A cache that the call appends to; what it holds was appended by an operation that is shared."""
    ref = CacheRef(pool="text_kv", id="mine", version=0, owner=work.scope.owner)
    if content:
        ref = work.scope.append(ref, list(content), key_of(work, op="fill"))
    return (CacheUse(ref=ref, mode=CacheMode.APPEND, shared=True),)


def changed_weights(engine: Engine) -> CacheKey:
    engine.instance(MODEL).weights_changed("text")
    return key_of(first_work(engine))


def from_a_folder(work: Work, patch: Patch) -> CacheKey:
    patch.setattr(work.instance, "folder", "a folder")
    patch.setattr(work.instance, "fingerprint", lambda: "that of its files")
    return key_of(work)


def on_another_device(work: Work, patch: Patch) -> CacheKey:
    patch.setattr(work.instance, "device", torch.device("cpu:0"))
    return key_of(work)


def with_more_threads(work: Work, patch: Patch) -> CacheKey:
    patch.setattr(torch, "get_num_threads", lambda: 7)
    return key_of(work)


def with_an_adapter(engine: Engine, files: dict[str, str]) -> CacheKey:
    return key_of(first_work(engine, adapters=(Adapter(path=files["text"]),)))


CHANGES: dict[str, Callable[[Engine, Work, Patch, dict[str, str]], CacheKey]] = {
    "model": lambda engine, work, patch, files: elsewhere(models=[derive(find_card(MODEL), summary="another")]),
    "component": lambda engine, work, patch, files: key_of(work, component="vae"),
    "op": lambda engine, work, patch, files: key_of(work, op="another"),
    "weights": lambda engine, work, patch, files: from_a_folder(work, patch),
    "version": lambda engine, work, patch, files: changed_weights(engine),
    "adapters": lambda engine, work, patch, files: with_an_adapter(engine, files),
    "precision": lambda engine, work, patch, files: elsewhere(dtype="bfloat16"),
    "device": lambda engine, work, patch, files: on_another_device(work, patch),
    "environment": lambda engine, work, patch, files: with_more_threads(work, patch),
    "numerics": lambda engine, work, patch, files: key_of(replace(work, numerics=Numerics.FAST)),
    "static": lambda engine, work, patch, files: key_of(work, static={"part": 1}),
    "inputs": lambda engine, work, patch, files: key_of(work, rows={"text": "another"}),
    "previous": lambda engine, work, patch, files: key_of(work, caches=appending(work)),
}  # fmt: skip
"""For each field, what changes it and nothing else."""


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_of_a_key_is_read_where_it_changes(
    name: str, engine: Engine, files: dict[str, str], monkeypatch: Patch
) -> None:
    work = first_work(engine)
    before = key_of(work)
    after = CHANGES[name](engine, work, monkeypatch, files)
    assert [
        one.name for one in fields(CacheKey) if getattr(before, one.name) != getattr(after, one.name)
    ] == [name]


def test_every_field_but_those_of_the_store_itself_is_tried() -> None:
    assert {one.name for one in fields(CacheKey)} - CHANGES.keys() == {"part", "contract"}


def test_a_version_is_named_by_the_one_before_it(engine: Engine) -> None:
    work = first_work(engine)
    keys = [key_of(work, caches=appending(work, torch.zeros(size))) for size in (1, 2)]
    assert keys[0] == keys[1], "one operation made both"
    assert keys[0] != key_of(work, caches=appending(work))


def test_an_output_and_what_is_appended_beside_it_are_parts_of_one_result(engine: Engine) -> None:
    work = first_work(engine)
    call = replace(work.plan.calls[0], caches=appending(work))
    computed = ComponentOutput(
        output=CallOutput(tensors={"embeds": torch.zeros(1)}), caches=([torch.ones(1)],)
    )
    key = result_key(call, work)
    assert key is not None
    stored(key, call, computed, work.scope)
    pools = work.scope.stores.pools
    assert pools["feature"].find(key) is not None
    assert pools["text_kv"].find(key) is None
    assert pools["text_kv"].find(replace(key, part="cache 0")) is not None


def shared_key(work: Work, **changed: Any) -> Any:
    call = replace(work.plan.calls[0], **changed)
    return Call(Task(work), 0, call).shared_key()


def test_every_field_of_what_forwards_are_shared_by_is_read(engine: Engine, files: dict[str, str]) -> None:
    work = first_work(engine)
    assert shared_key(work) == shared_key(first_work(engine, seed=2, prompt="another", guidance=1.0))
    with Engine([MODEL], device="cpu") as another:
        others = [
            shared_key(first_work(another)), shared_key(work, component="vae"), shared_key(work, op="another"),
            shared_key(replace(work, numerics=Numerics.FAST)), shared_key(work, static={"part": 1}),
            shared_key(first_work(engine, adapters=(Adapter(path=files["text"]),))),
        ]  # fmt: skip
    assert len({shared_key(work), *others}) == 1 + len(others)
    assert shared_key(first_work(engine, adapters=(Adapter(path=files["one"]),))) == shared_key(work), (
        "an adapter of the transformer leaves the text encoder alone"
    )


@pytest.mark.parametrize(
    ("one", "other"), [(0.0, -0.0), (1, True), (1, 1.0), (True, 1.0), ("1", 1), (2**53, 2.0**53)]
)
def test_static_values_that_differ_in_type_or_bits_share_no_forward(
    one: Any, other: Any, engine: Engine
) -> None:
    def work(text: str, value: Any) -> Work:
        made = first_work(engine)
        call = replace(made.plan.calls[0], rows={"text": text}, static={"part": value})
        return replace(made, plan=replace(made.plan, calls=(call,)))

    for second, forwards in ((one, 1), (other, 2)):
        before = sum(found.forwards for found in engine.forwards())
        execute([work(f"first of {second!r}", one), work(f"second of {second!r}", second)])
        assert sum(found.forwards for found in engine.forwards()) - before == forwards


ADAPTERS = (
    (), (("one", 1.0),), (("one", 0.5),), (("other", 1.0),), (("one", 1.0), ("other", 1.0)),
    (("other", 1.0), ("one", 1.0)), (("text", 1.0),),
)  # fmt: skip
FIELDS: dict[str, tuple[Any, ...]] = {
    "prompt": ("a red circle", "a blue square that turns", "a red circle "),
    "negative_prompt": (None, "grey", "a red circle"),
    "seed": (1, 2),
    "size": ((16, 16), (32, 16), (16, 32)),
    "frames": (1, 5, 9),
    "fps": (8.0, 16.0),
    "steps": (1, 2, 3),
    "guidance": (1.0, 3.0, 7.5),
    "numerics": tuple(Numerics),
    "params": ({}, {"shift": 1.0}, {"shift": 5.0}),
    "adapters": ADAPTERS,
}
"""Every field of a request that this model reads."""

APART = {"size", "frames", "numerics"}
"""Fields whose values never share a forward of the transformer."""


def test_every_field_of_a_request_is_tried() -> None:
    assert {one.name for one in fields(Request)} - FIELDS.keys() == {"model", "task", "inputs", "output"}


def asked(given: dict[str, Any], files: dict[str, str]) -> Request:
    adapters = tuple(Adapter(path=files[name], scale=scale) for name, scale in given.get("adapters", ()))
    return Request(**{**SMALL, **given, "adapters": adapters})


def equals(one: Clip, other: Clip, numerics: Numerics | None) -> bool:
    pairs = [(one.tensors[name], other.tensors[name]) for name in ("latent", "video")]
    if numerics is Numerics.FAST:
        return all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in pairs)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.fixture
def largest(engine: Engine, monkeypatch: Patch) -> list[int]:
    """How many calls the forwards of the transformer had."""
    part: Any = engine.instance(MODEL).component("transformer")
    forward, sizes = part.forward_batch, list[int]()

    def counted(op: str, calls: Sequence[Any]) -> Any:
        sizes.append(len(calls))
        return forward(op, calls)

    monkeypatch.setattr(part, "forward_batch", counted)
    return sizes


def check_pair(engine: Engine, lone: Engine, requests: list[Request]) -> None:
    """Raises where sharing, with each other or with what earlier requests came to, changed a result."""
    for request, result in zip(requests, engine.run_many(requests), strict=True):
        assert result.clip is not None, result.error
        assert equals(result.clip, lone.run(request), request.numerics), request


def own_rows(request: Request) -> int:
    """Of one step of a request alone; its branches share a forward, but not under reference."""
    guided = request.guidance is not None and request.guidance > 1.0
    return 2 if guided and request.numerics is not Numerics.REFERENCE else 1


@pytest.mark.parametrize("name", FIELDS)
def test_of_two_requests_that_differ_in_one_field_sharing_leaves_both_as_they_are_alone(
    name: str,
    engine: Engine,
    lone: Engine,
    largest: list[int],
    files: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    shared = []

    @settings(
        max_examples=30 if request.config.getoption("--soak") else 3,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    @given(st.data())
    def fuzz(data: st.DataObject) -> None:
        values = data.draw(st.lists(st.sampled_from(FIELDS[name]), min_size=2, max_size=2, unique_by=repr))
        common = data.draw(st.sampled_from(sorted(FIELDS.keys() - {name})))
        same = {common: data.draw(st.sampled_from(FIELDS[common]))}
        pair = [asked({**same, name: value}, files) for value in values]
        largest.clear()
        check_pair(engine, lone, pair)
        shared.append(max(largest) > max(map(own_rows, pair)))

    fuzz()
    assert any(shared) or name in APART | {"adapters"}
    assert not any(shared) or name not in APART


def test_the_comparison_sees_a_key_that_lacks_a_field(
    engine: Engine, lone: Engine, files: dict[str, str], monkeypatch: Patch
) -> None:
    pair = [asked({"adapters": value}, files) for value in ((), (("text", 1.0),))]
    check_pair(engine, lone, pair)

    def forgetful(call: Any, work: Work) -> CacheKey | None:
        key = result_key(call, work)
        return None if key is None else replace(key, adapters=())

    monkeypatch.setattr(calls_module, "result_key", forgetful)
    with pytest.raises(AssertionError):
        check_pair(engine, lone, pair)
