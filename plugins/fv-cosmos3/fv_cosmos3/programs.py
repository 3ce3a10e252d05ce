"""The tasks as programs. Thinking and sound are edges: a branch that a request does not take loads nothing.

Every generation understands its prompts once and denoises on them; what differs is the text and what is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fv_core.program import Compare, ComponentNode, InputSpec, LoopNode, Node, Program, When
from fv_core.request import Modality, TaskType

_GUIDED: Final = When(field="guidance", compare=Compare.GREATER, value=1.0)
_THINK: Final = When(field="params.think", compare=Compare.EQUAL, value=True)
_LOUD: Final = When(field="params.audio", compare=Compare.EQUAL, value=True)
_SILENT: Final = When(field="params.audio", compare=Compare.EQUAL, value=False)
_NUMBERS: Final = {name: f"request.{name}" for name in ("width", "height", "frames", "fps")}
_VIEW: Final = {"view": "request.params.view", "tier": "request.params.tier"}


def programs(sample_rate: int) -> dict[TaskType, Program]:
    """All tasks; the first is the default one. `sample_rate` is that of the sound, in Hz."""
    image, video = InputSpec(modality=Modality.IMAGE), InputSpec(modality=Modality.VIDEO)
    view = InputSpec(modality=Modality.IMAGE, sizes=True)
    clip = InputSpec(modality=Modality.VIDEO, sizes=True)
    action = InputSpec(modality=Modality.ACTION)
    return {
        TaskType.T2V: _clip(None, None, sample_rate),
        TaskType.T2I: Program(
            nodes=(*_text(), _denoise(), _decode()),
            artifacts={"video": "video", "text": "thought"},
            fixed={"frames": 1},
        ),
        TaskType.I2V: _clip(image, "encode_image", sample_rate),
        TaskType.V2V: _clip(video, "encode_video", sample_rate),
        TaskType.QA: _answer(),
        TaskType.POLICY: Program(
            nodes=(
                *_action_text(),
                _given("encode_view", view),
                _denoise(condition=True, acts=True),
                _decode(),
            ),
            artifacts={"video": "video", "action": "action"},
            inputs=(view,),
        ),
        TaskType.FORWARD_DYNAMICS: Program(
            nodes=(
                *_action_text(),
                _given("encode_view", view),
                _padded_actions(),
                _denoise(condition=True, follows=True),
                _decode(),
            ),
            artifacts={"video": "video"},
            inputs=(view, action),
        ),
        TaskType.INVERSE_DYNAMICS: Program(
            nodes=(*_action_text(), _given("encode_view", clip), _denoise(condition=True, acts=True)),
            artifacts={"action": "action"},
            inputs=(clip,),
        ),
    }


def _clip(given: InputSpec | None, encode: str | None, sample_rate: int) -> Program:
    """Text, and an image or a video where one is given, to a video, with sound if it is asked for."""
    condition = given is not None
    encoded = () if given is None or encode is None else (_given(encode, given),)
    return Program(
        nodes=(
            *_text(),
            *encoded,
            _denoise(condition=condition, when=_SILENT),
            _denoise(condition=condition, when=_LOUD),
            _decode(),
            ComponentNode(
                id="decode_sound",
                label="decode sound",
                component="sound",
                op="decode",
                reads={"latent": "sound_latent", "frames": "request.frames", "fps": "request.fps"},
                writes={"audio": "audio"},
                when=_LOUD,
            ),
        ),
        artifacts={"video": "video", "audio": "audio", "text": "thought"},
        inputs=() if given is None else (given,),
        sample_rate=sample_rate,
    )


def _answer() -> Program:
    return Program(
        nodes=(*_spoken(question="request.prompt", text="answer", when=None),),
        artifacts={"text": "answer"},
        fixed={"frames": 0, "steps": 0, "guidance": 1.0},
    )


def _spoken(*, question: str, text: str, when: When | None) -> tuple[Node, ...]:
    """The reasoner's words on a question."""
    return (
        ComponentNode(
            id="ask",
            label="ask",
            component="transformer",
            op="question",
            reads={"text": question},
            writes={"tokens": "question"},
            when=when,
        ),
        LoopNode(
            id="reason",
            label="reason",
            loop="reason",
            reads={"tokens": "question"},
            writes={"tokens": "answer_tokens"},
            when=when,
        ),
        ComponentNode(
            id="read_out",
            label="read out",
            component="transformer",
            op="answer",
            reads={"tokens": "answer_tokens"},
            writes={"text": text},
            when=when,
        ),
    )


def _text() -> tuple[Node, ...]:
    """Thinks about the prompt if asked to, then understands it and, with guidance, the negative prompt."""
    return (
        *_spoken(question="request.prompt", text="thought", when=_THINK),
        ComponentNode(
            id="prompt",
            label="tokenise prompt",
            component="transformer",
            op="prompt",
            reads={"text": "request.prompt", "thought": "thought", **_NUMBERS},
            writes={"tokens": "tokens"},
            static={"negative": False},
            optional=("thought",),
        ),
        ComponentNode(
            id="negative_prompt",
            label="tokenise negative prompt",
            component="transformer",
            op="prompt",
            reads={"text": "request.negative_prompt", **_NUMBERS},
            writes={"tokens": "negative_tokens"},
            static={"negative": True},
            when=_GUIDED,
        ),
        *_understood(),
    )


def _action_text() -> tuple[Node, ...]:
    """The caption of the action modes; their negative prompt is plain text."""
    return (
        ComponentNode(
            id="prompt",
            label="tokenise prompt",
            component="transformer",
            op="action_prompt",
            reads={"text": "request.prompt", **_NUMBERS, **_VIEW},
            writes={"tokens": "tokens"},
            static={"negative": False},
        ),
        ComponentNode(
            id="negative_prompt",
            label="tokenise negative prompt",
            component="transformer",
            op="action_prompt",
            reads={"text": "request.negative_prompt"},
            writes={"tokens": "negative_tokens"},
            static={"negative": True},
            when=_GUIDED,
        ),
        *_understood(),
    )


def _understood() -> tuple[Node, ...]:
    return (
        LoopNode(
            id="understand",
            label="understand prompt",
            loop="understand",
            reads={"tokens": "tokens"},
            writes={"kv": "cond"},
        ),
        LoopNode(
            id="understand_negative",
            label="understand negative prompt",
            loop="understand",
            reads={"tokens": "negative_tokens"},
            writes={"kv": "uncond"},
            when=_GUIDED,
        ),
    )


def _given(encode: str, given: InputSpec) -> Node:
    return LoopNode(
        id="encode",
        label=f"encode {given.modality}",
        loop=encode,
        reads={"media": given.slot},
        writes={"latent": "condition"},
    )


def _padded_actions() -> Node:
    return ComponentNode(
        id="actions",
        label="read actions",
        component="transformer",
        op="actions",
        reads={"action": "request.action", "frames": "request.frames", "domain": "request.params.domain"},
        writes={"action": "given_action"},
    )


def _denoise(
    *, condition: bool = False, acts: bool = False, follows: bool = False, when: When | None = None
) -> Node:
    """`acts`: actions are made beside the frames. `follows`: the frames follow given ones."""
    loud = when is _LOUD
    writes = {
        "latent": "latent",
        **({"sound": "sound_latent"} if loud else {}),
        **({"action": "action"} if acts else {}),
    }
    reads: Mapping[str, str] = {
        "cond": "cond",
        "uncond": "uncond",
        **({"condition": "condition"} if condition else {}),
        **({"action": "given_action"} if follows else {}),
    }
    return LoopNode(
        id="denoise_with_sound" if loud else "denoise",
        label="denoise with sound" if loud else "denoise",
        loop="denoise",
        reads=reads,
        writes=writes,
        optional=("uncond",),
        when=when,
    )


def _decode() -> Node:
    return LoopNode(
        id="decode", label="decode", loop="decode", reads={"latent": "latent"}, writes={"video": "video"}
    )
