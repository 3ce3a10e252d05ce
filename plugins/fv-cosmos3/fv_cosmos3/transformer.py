"""The transformer with its tokenizer: one set of weights that answers and that generates.

References: diffusers 0.42.1 `Cosmos3OmniPipeline`; transformers 5.24.0 `Cosmos3OmniForConditionalGeneration`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from diffusers import Cosmos3OmniTransformer
from torch import Tensor, nn

from fv_core.errors import RequestError
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.rows import number, tensor, whole
from fv_cosmos3.calls import OneByOne, Operation, size, tensors
from fv_cosmos3.embodiments import EMBODIMENTS, canvas
from fv_cosmos3.joint import Action, Step, velocities
from fv_cosmos3.pathways import understand
from fv_cosmos3.prompts import action_prompt, clip_conversation, clip_prompt, conversation


class Transformer(OneByOne):
    """One set of weights for answering and for generating.

    prompt, action_prompt, question: row text and what the sentence or caption names; output tokens int64 [L].
    answer: row tokens; text `text`. prefill_sample, decode_sample: as `ar.sample/v1`. text_kv: row tokens, one cache
    appended. actions: row action [T, D], frames, domain; output action fp32 [T, action_dim]. velocities: as
    `JointDenoise`, the prompt's cache read.
    """

    def __init__(self, module: Cosmos3OmniTransformer, tokenizer: Any, compression: int) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self._compression = compression

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.module.lm_head.weight.device
        return device

    @property
    def operations(self) -> Mapping[str, Operation]:
        return {
            "prompt": self._prompt,
            "action_prompt": self._action_prompt,
            "question": self._question,
            "answer": self._answer,
            "prefill_sample": self._prefill,
            "decode_sample": self._decode,
            "text_kv": self._text_kv,
            "actions": self._actions,
            "velocities": self._velocities,
        }

    def _prompt(self, call: ResolvedCall) -> ComponentOutput:
        frames = whole(call, "frames")
        negative = bool(call.static["negative"])
        said = str(call.rows.get("thought", "")).strip()
        asked = str(call.rows["text"])
        text = clip_prompt(said or asked, size(call), frames, number(call, "fps"), negative=negative)
        notes = ("the model thought of nothing: the prompt is used as it is",)
        empty = "thought" in call.rows and not said
        return self._generation(clip_conversation(text, frames), notes if empty else ())

    def _action_prompt(self, call: ResolvedCall) -> ComponentOutput:
        if call.static["negative"]:
            return self._generation(conversation(str(call.rows["text"])))
        text = action_prompt(
            str(call.rows["text"]),
            str(call.rows["view"]),
            canvas(str(call.rows["tier"]), size(call)),
            whole(call, "frames"),
            number(call, "fps"),
        )
        return self._generation(conversation(text))

    def _question(self, call: ResolvedCall) -> ComponentOutput:
        return self._tokens(self._chat(conversation(str(call.rows["text"]))))

    def _answer(self, call: ResolvedCall) -> ComponentOutput:
        text = self.tokenizer.decode(tensor(call, "tokens").tolist(), skip_special_tokens=True)
        return ComponentOutput(output=CallOutput(tensors={}, texts={"text": text.strip()}))

    def _prefill(self, call: ResolvedCall) -> ComponentOutput:
        return self._sampled(call, tensor(call, "tokens"))

    def _decode(self, call: ResolvedCall) -> ComponentOutput:
        token = call.rows["token"]
        tokens = token.reshape(1) if isinstance(token, Tensor) else torch.tensor([whole(call, "token")])
        return self._sampled(call, tokens)

    def _sampled(self, call: ResolvedCall, tokens: Tensor) -> ComponentOutput:
        (past,) = call.caches
        start = whole(call, "position")
        hidden, kv = understand(self.module, tokens.to(self._device), start, tensors(past))
        token, logprob = sample(
            self.module.lm_head(hidden[-1:])[0], number(call, "temperature"), number(call, "uniform")
        )
        position = torch.tensor(start + len(tokens))
        drawn = {"token": token, "logprob": logprob, "position": position}
        return ComponentOutput(output=CallOutput(tensors=drawn), caches=(list(kv),))

    def _text_kv(self, call: ResolvedCall) -> ComponentOutput:
        tokens = tensor(call, "tokens").to(self._device)
        _, kv = understand(self.module, tokens, 0, ())
        return ComponentOutput(output=CallOutput(tensors={}), caches=(list(kv),))

    def _actions(self, call: ResolvedCall) -> ComponentOutput:
        action, domain = tensor(call, "action").float(), str(call.rows["domain"])
        count, width = whole(call, "frames") - 1, EMBODIMENTS[domain].width
        given = len(action)
        if action.shape[1] != width:
            raise _other_width(action.shape[1], domain)
        notes: tuple[str, ...] = ()
        if given < count:
            notes = (f"{given} actions were given: the last one was repeated to {count}",)
            action = torch.cat([action, action[-1:].expand(count - given, -1)])
        elif given > count:
            notes = (f"the first {count} of the {given} actions are used",)
        padded = nn.functional.pad(action[:count], (0, self.module.config.action_dim - width)).to(
            self._device
        )
        return ComponentOutput(output=CallOutput(tensors={"action": padded}, notes=notes))

    def _velocities(self, call: ResolvedCall) -> ComponentOutput:
        (text,) = call.caches
        action = None
        if "action" in call.rows:
            action = Action(
                latent=tensor(call, "action"),
                clean=whole(call, "clean_actions"),
                domain=EMBODIMENTS[str(call.rows["domain"])].domain,
            )
        step = Step(
            timestep=whole(call, "timestep"),
            fps=number(call, "fps"),
            video=tensor(call, "video"),
            clean=whole(call, "clean"),
            sound=tensor(call, "sound") if "sound" in call.rows else None,
            action=action,
            compression=self._compression,
        )
        found = velocities(self.module, step, tensors(text))
        return ComponentOutput(output=CallOutput(tensors=found), caches=(None,))

    def _generation(self, turns: list[dict[str, str]], notes: tuple[str, ...] = ()) -> ComponentOutput:
        begin = self.tokenizer.convert_tokens_to_ids("<|vision_start|>")
        return self._tokens([*self._chat(turns), self.tokenizer.eos_token_id, begin], notes)

    def _chat(self, turns: list[dict[str, str]]) -> list[int]:
        encoded = self.tokenizer.apply_chat_template(
            turns, tokenize=True, add_generation_prompt=True, add_vision_id=False, return_dict=True
        )
        return list(encoded.input_ids)

    def _tokens(self, ids: list[int], notes: tuple[str, ...] = ()) -> ComponentOutput:
        return ComponentOutput(output=CallOutput(tensors={"tokens": torch.tensor(ids)}, notes=notes))


def sample(logits: Tensor, temperature: float, uniform: float) -> tuple[Tensor, Tensor]:
    """A token (int64, 0-d) and its log-probability (fp32, 0-d) under what it is drawn from.

    Args:
        logits: [vocabulary]. temperature: 0 takes the likeliest token. uniform: in [0, 1), picks the token.
    """
    scaled = logits.float() / temperature if temperature > 0 else logits.float()
    logprobs = torch.log_softmax(scaled, dim=-1)
    if temperature > 0:
        reached = logprobs.double().exp().cumsum(0)
        token = torch.searchsorted(reached, uniform * reached[-1], right=True).clamp(max=len(logits) - 1)
    else:
        token = scaled.argmax()
    return token, logprobs[token]


def _other_width(width: int, domain: str) -> RequestError:
    fitting = [name for name, one in EMBODIMENTS.items() if one.width == width]
    return RequestError(
        "FV310",
        name="parameter domain",
        value=domain,
        rule=f"has actions of {EMBODIMENTS[domain].width} numbers, those given have {width} numbers",
        legal=", ".join(fitting) or "none with so many",
        remedy="Choose the embodiment that the actions are of.",
    )
