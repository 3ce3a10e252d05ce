"""Loading: a broken plugin is left out with its reason, and breaks nobody else."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fv_core.errors import FvError
from fv_core.plugins import (
    PluginState,
    all_cards,
    broken_plugins,
    default_registry,
    find_card,
    find_interceptor,
    plugin_records,
    record_of,
)

Install = Callable[..., None]

GOOD = """
from fv_core import ComponentSpec, LoopSpec, ModelCard, RecipeSpec, TaskType, hookimpl, text_to_video
from fv_core.extend import InterceptorSpec

fv_api = 1
SEMANTICS = "flow.euler.cfg/v1"

def card(model_id):
    return ModelCard(
        model_id=model_id,
        family="toy",
        version="1",
        components={name: ComponentSpec(load=f"toy:{name}") for name in ("text", "dit", "vae")},
        loops={
            "denoise": LoopSpec(loop="fv_core.loop.flow_denoise:FlowDenoise", semantics=SEMANTICS,
                                binds={"denoiser": "dit"}),
            "decode": LoopSpec(loop="fv_core.loop.vae_decode:VaeDecode", semantics="vae.decode/v1",
                               binds={"vae": "vae"}),
        },
        programs={TaskType.T2V: text_to_video(encode="text", denoise="denoise", decode="decode")},
        recipe=RecipeSpec(assumes_loop=SEMANTICS),
    )

def interceptor(ident, **more):
    facts = dict(loop_kinds=("flow_denoise",), distribution_altering=True, params="toy:P", factory="toy:F")
    return InterceptorSpec(id=ident, **{**facts, **more})

@hookimpl
def fv_cards():
    return [card("NAME/tiny")]

@hookimpl
def fv_interceptors():
    return [interceptor("NAME/skip")]
"""

LOOKED_AT = """
def __getattr__(name):
    raise RuntimeError("no attributes here")
"""
DUMB = """
class Dumb(Exception):
    def __str__(self):
        raise ValueError
"""
OWN = """
class Mine(ModelCard):
    @property
    def model_id(self):
        raise ValueError
"""

BROKEN = {
    "raises when imported": ("FV102", "RuntimeError: no luck", GOOD + '\nraise RuntimeError("no luck")\n'),
    "leaves when imported": ("FV102", "SystemExit", GOOD + "\nimport sys\nsys.exit(0)\n"),
    "is not Python": ("FV102", "SyntaxError", "def :"),
    "lacks a dependency": ("FV114", "absent_library", "import absent_library\n"),
    "speaks another API": ("FV103", "fv_api 2", GOOD + "\nfv_api = 2\n"),
    "states no API": ("FV103", "legal: 1", GOOD + "\ndel fv_api\n"),
    "misspells a hook": ("FV115", "fv_crads", GOOD + "\n@hookimpl\ndef fv_crads():\n    return []\n"),
    "asks for arguments": ("FV116", "engine", GOOD + "\n@hookimpl\ndef fv_cards(engine):\n    return []\n"),
    "hook raises": ("FV117", "KeyError", GOOD + "\n@hookimpl\ndef fv_cards():\n    return {}[1]\n"),
    "hook returns nothing to iterate": ("FV117", "TypeError", GOOD + "\n@hookimpl\ndef fv_cards():\n    return 5\n"),
    "returns another record": ("FV104", "returned a str", GOOD + '\n@hookimpl\ndef fv_cards():\n    return ["x"]\n'),
    "lies in a foreign namespace": (
        "FV104",
        "outside the namespace bad/",
        GOOD + '\n@hookimpl\ndef fv_cards():\n    return [card("wan21/micro")]\n',
    ),
    "says a thing twice": (
        "FV104", "appears twice", GOOD + '\n@hookimpl\ndef fv_cards():\n    return [card("NAME/tiny")] * 2\n',
    ),
    "has an invalid card": ("FV201", "assumes_loop", GOOD.replace("RecipeSpec(assumes_loop=SEMANTICS)",
                                                                  'RecipeSpec(assumes_loop="ar/v1")')),
    "intercepts nothing there is": ("FV104", "flow-denoise", GOOD.replace('("flow_denoise",)', '("flow-denoise",)')),
    "attaches at an unknown level": (
        "FV104", "block", GOOD.replace('interceptor("NAME/skip")', 'interceptor("NAME/skip", level="block")'),
    ),
    "raises when it is looked at": (
        "FV104", "RuntimeError: no attributes", GOOD + '\ndel fv_api\n' + LOOKED_AT,
    ),
    "leaves through a BaseException": ("FV102", "Away", GOOD + "\nclass Away(BaseException): pass\nraise Away()\n"),
    "stops like a generator": ("FV102", "GeneratorExit", GOOD + "\nraise GeneratorExit\n"),
    "raises what cannot be told": ("FV102", "Dumb (and its text raised", GOOD + DUMB + "\nraise Dumb()\n"),
    "states an array as its API": ("FV103", "fv_api", GOOD + "\nimport numpy\nfv_api = numpy.array([1, 1])\n"),
    "states a boolean as its API": ("FV103", "fv_api True", GOOD + "\nfv_api = True\n"),
    "states a fraction as its API": ("FV103", "fv_api 1.0", GOOD + "\nfv_api = 1.0\n"),
    "returns the shell of a card": (
        "FV104", "AttributeError", GOOD + "\n@hookimpl\ndef fv_cards():\n    return [object.__new__(ModelCard)]\n",
    ),
    "returns a card of its own class": (
        "FV104", "returned a Mine", GOOD + OWN + "\n@hookimpl\ndef fv_cards():\n    return [object.__new__(Mine)]\n",
    ),
    "names no kinds of loops": ("FV104", "None", GOOD.replace('("flow_denoise",)', "None")),
    "leaves its hook unmarked": ("FV121", "hook fv_cards", GOOD.replace("@hookimpl\ndef fv_cards", "def fv_cards")),
    "returns None": ("FV117", "returned None", GOOD + "\n@hookimpl\ndef fv_cards():\n    card('NAME/tiny')\n"),
    "hook leaves": ("FV117", "SystemExit", GOOD + "\n@hookimpl\ndef fv_cards():\n    raise SystemExit\n"),
    "wraps a hook": ("FV116", "is a wrapper", GOOD + "\n@hookimpl(hookwrapper=True)\ndef fv_cards():\n    return []\n"),
    "needs a module that the core had": ("FV109", "fv_core.gone", "from fv_core.gone import x\n"),
    "needs a name that the core had": ("FV109", "cannot import name 'Gone'", "from fv_core import Gone\n"),
}  # fmt: skip


def test_good_plugin_is_found_by_metadata_and_imported_when_it_is_named(install: Install) -> None:
    install("good", GOOD.replace("NAME", "good"), requires=("torch", "nowhere; extra == 'x'"))
    record = next(record for record in plugin_records() if record.name == "good")
    assert (record.module, record.dist, record.version, str(record)) == (
        "fv_good", "fv-good", "1.2.3", "fv-good 1.2.3",
    )  # fmt: skip
    assert "fv_good" not in sys.modules
    card = find_card("good/tiny")
    assert "fv_good" in sys.modules
    assert card in all_cards()
    assert getattr(record_of(card), "name", None) == "good"
    assert find_interceptor("good/skip").factory == "toy:F"
    assert broken_plugins() == {}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_plugin_is_left_out_with_its_reason_and_others_work(kind: str, install: Install) -> None:
    code, words, source = BROKEN[kind]
    install("bad", source.replace("NAME", "bad"))
    install("good", GOOD.replace("NAME", "good"))
    assert {card.model_id for card in all_cards()} >= {"good/tiny", "wan21/micro"}
    assert find_card("good/tiny").family == "toy"
    ((record, error),) = broken_plugins().items()
    assert (record.name, error.code) == ("bad", code)
    assert words in error.message
    with pytest.raises(FvError) as caught:
        find_card("bad/tiny")
    assert caught.value.code == code
    assert not [card for card in all_cards() if card.model_id.startswith("bad/")]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (GOOD + "\n@hookimpl(wrapper=True)\ndef fv_cards():\n    yield\n", "plain @hookimpl"),
        ("from fv_core.gone import x\n", "--upgrade fv-core fv-bad"),
    ],
)
def test_a_remedy_cures_what_is_wrong(source: str, words: str, install: Install) -> None:
    install("bad", source)
    ((_, error),) = broken_plugins().items()
    assert words in error.remedy


def test_an_interrupt_of_the_user_is_no_fault_of_the_plugin(install: Install) -> None:
    install("bad", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        find_card("bad/tiny")
    assert "fv_bad" not in sys.modules


CHANGES = """
import os, signal
import torch
os.chdir("/")
os.environ["OF_A_PLUGIN"] = "1"
signal.signal(signal.SIGTERM, signal.SIG_IGN)
torch.set_default_dtype(torch.float64)
"""


@pytest.mark.parametrize("fails", [False, True])
def test_what_an_import_changes_is_put_back_and_told(
    fails: bool, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_A_PLUGIN", "0")
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    install("good", GOOD.replace("NAME", "good") + CHANGES + ("\n1 / 0\n" if fails else ""))
    record = next(one for one in default_registry().check() if one.name == "good")
    assert record.state is (PluginState.BROKEN if fails else PluginState.READY)
    assert (Path.cwd(), signal.getsignal(signal.SIGTERM)) == (tmp_path, handler)
    assert torch.get_default_dtype() is torch.float32
    told = record.reason.splitlines()[-1]
    assert told.startswith(
        "plugin good (fv-good 1.2.3), when it was imported, changed the working folder to / (put"
    )
    for words in (
        "dtype of torch to torch.float64",
        "SIGTERM (put back)",
        "changed OF_A_PLUGIN in the environment",
    ):
        assert words in told


def test_an_import_that_changes_nothing_is_not_told(install: Install) -> None:
    install("good", GOOD.replace("NAME", "good"))
    assert {record.name: record.reason for record in default_registry().check()}["good"] == ""


def test_unknown_model_is_refused_with_what_is_close(install: Install) -> None:
    install("good", GOOD.replace("NAME", "good"))
    with pytest.raises(FvError) as caught:
        find_card("good/tine")
    assert caught.value.code == "FV101"
    assert "good/tiny" in caught.value.remedy
    assert "wan21/micro" in caught.value.legal


def test_unknown_interceptor_is_refused_with_what_there_is(install: Install) -> None:
    install("good", GOOD.replace("NAME", "good"))
    for ident in ("good/skpi", "absent/skip", "skip"):
        with pytest.raises(FvError) as caught:
            find_interceptor(ident)
        assert caught.value.code == "FV107"
        assert "good/skip" in caught.value.legal


def test_card_made_in_the_program_has_no_record() -> None:
    from dataclasses import replace

    card = find_card("wan21/micro")
    assert record_of(card) is not None
    assert record_of(replace(card, model_id="mine/tiny")) is None
