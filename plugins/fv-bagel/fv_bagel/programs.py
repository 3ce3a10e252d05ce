"""The programs: what is read into a context, whether a thought comes first, and what is made from it."""

from __future__ import annotations

from typing import Final

from fv_bagel.prompts import PLANNING, REASONING
from fv_core.program import Compare, ComponentNode, InputSpec, LoopNode, Node, Program, When
from fv_core.request import Modality

THINKS: Final = When(field="params.think", compare=Compare.EQUAL, value=True)
_SEES: Final = When(field="inputs.image", compare=Compare.EQUAL, value=True)
_CONTEXT: Final = {"context": "context", "context_position": "context_position"}
_BRANCHES: Final = {
    name: name for branch in ("context", "no_text", "no_image") for name in (branch, f"{branch}_position")
}


def text_to_image() -> Program:
    """A prompt to an image."""
    return Program(
        nodes=(*_words(PLANNING), _read("context", _BRANCHES), *_thought(), _denoise(), _decode()),
        artifacts={"video": "video", "text": "thought"},
        fixed={"frames": 1},
    )


def edit() -> Program:
    """An image and what is to become of it, to an image of the same size. Guidance as the reference edits with."""
    encode = LoopNode(
        id="encode",
        label="encode image",
        loop="encode",
        reads={"image": "request.image"},
        writes={"latent": "image_latent", "rng": "rng"},
        tensors=("image",),
    )
    seen = {"latent": "image_latent", "vision": "image_tokens"}
    return Program(
        nodes=(
            *_words(PLANNING),
            encode,
            _look(None),
            _read("context", _BRANCHES, seen),
            *_thought(),
            _denoise(rng="rng"),
            _decode(),
        ),
        artifacts={"video": "video", "text": "thought"},
        inputs=(InputSpec(modality=Modality.IMAGE, sizes=True),),
        fixed={"frames": 1},
        defaults={"image_guidance": 2.0, "interval_low": 0.0, "renorm": "text_channel"},
    )


def answer() -> Program:
    """A question, on an image or not, to text."""
    return Program(
        nodes=(
            *_words(REASONING),
            _look(_SEES),
            _read("question", _CONTEXT, {"vision": "image_tokens"}, optional=("vision",)),
            _write("answer", "answer_tokens", None),
            _spell("spell_answer", "answer_tokens", "answer", None),
        ),
        artifacts={"text": "answer"},
        inputs=(InputSpec(modality=Modality.IMAGE, sizes=True, optional=True),),
        fixed={"frames": 0, "steps": 0, "guidance": 1.0},
    )


def _words(system: str) -> tuple[Node, Node]:
    """The prompt and, before a thought, what the model is told first."""
    prompt = ComponentNode(
        id="prompt",
        label="read prompt",
        component="model",
        op="tokenize",
        reads={"text": "request.prompt"},
        writes={"ids": "prompt_ids", "start": "start"},
    )
    told = ComponentNode(
        id="system",
        label="read instructions",
        component="model",
        op="tokenize",
        reads={},
        writes={"ids": "system_ids"},
        static={"text": system},
        when=THINKS,
    )
    return prompt, told


def _look(when: When | None) -> ComponentNode:
    return ComponentNode(
        id="look",
        label="look at image",
        component="vision",
        op="encode",
        reads={"image": "request.image"},
        writes={"tokens": "image_tokens"},
        when=when,
    )


def _read(
    loop: str, writes: dict[str, str], images: dict[str, str] | None = None, optional: tuple[str, ...] = ()
) -> LoopNode:
    return LoopNode(
        id="context",
        label="read context",
        loop=loop,
        reads={"text": "prompt_ids", "system": "system_ids", **(images or {})},
        writes=writes,
        optional=("system", *optional),
        tensors=("text", "system"),
    )


def _thought() -> tuple[Node, ...]:
    """Text written from a copy of the context, spelt, and read into the whole context as a block of its own."""
    ids = ComponentNode(
        id="thought_ids",
        label="read thought",
        component="model",
        op="tokenize",
        reads={"text": "thought"},
        writes={"ids": "thought_ids"},
        when=THINKS,
    )
    remember = LoopNode(
        id="remember",
        label="remember thought",
        loop="question",
        reads={"text": "thought_ids", **_CONTEXT},
        writes=_CONTEXT,
        tensors=("text",),
        when=THINKS,
    )
    think = _write("think", "thought_tokens", THINKS)
    return think, _spell("spell_thought", "thought_tokens", "thought", THINKS), ids, remember


def _write(ident: str, tokens: str, when: When | None) -> LoopNode:
    return LoopNode(
        id=ident,
        label=ident,
        loop="write",
        reads={"tokens": "start", "context": "context", "position": "context_position"},
        writes={"tokens": tokens},
        when=when,
    )


def _spell(ident: str, tokens: str, text: str, when: When | None) -> ComponentNode:
    return ComponentNode(
        id=ident,
        label="spell",
        component="model",
        op="detokenize",
        reads={"tokens": tokens},
        writes={"text": text},
        when=when,
    )


def _denoise(rng: str | None = None) -> LoopNode:
    return LoopNode(
        id="denoise",
        label="denoise",
        loop="denoise",
        reads={**_BRANCHES, **({} if rng is None else {"rng": rng})},
        writes={"latent": "latent"},
    )


def _decode() -> LoopNode:
    return LoopNode(
        id="decode", label="decode", loop="decode", reads={"latent": "latent"}, writes={"video": "video"}
    )
