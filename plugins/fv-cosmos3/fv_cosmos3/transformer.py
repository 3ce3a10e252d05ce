"""The transformer with its tokenizer: one set of weights that answers and that generates.

References: diffusers 0.42.1 `Cosmos3OmniPipeline`; transformers 5.24.0 `Cosmos3OmniForConditionalGeneration`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from diffusers import Cosmos3OmniTransformer
from torch import Tensor, nn

from fv_core.errors import RequestError
from fv_core.loop import CallOutput, ComponentOutput, ResolvedCall
from fv_core.loop.packing import LeastRows, product, size_class
from fv_core.loop.rows import number, tensor, whole
from fv_cosmos3.calls import OneByOne, Operation, Packed, size, tensors
from fv_cosmos3.embodiments import EMBODIMENTS, canvas
from fv_cosmos3.joint import Action, Step, rows_of, velocities
from fv_cosmos3.pathways import Text, rowwise, understand
from fv_cosmos3.prompts import action_prompt, clip_conversation, clip_prompt, conversation


class Transformer(OneByOne):
    """One set of weights for answering and for generating.

    prompt, action_prompt, question: row text and what the sentence or caption names; output tokens int64 [L].
    answer: row tokens; text `text`. prefill_sample, decode_sample: as `ar.sample/v1`. text_kv: row tokens, one cache
    appended. actions: row action [T, D], frames, domain; output action fp32 [T, action_dim]. velocities: as
    `JointDenoise`, the prompt's cache read.

    Sampling, `text_kv` and `velocities` share forwards, whatever the lengths, sizes and modalities of samples: rows are
    packed, and attention is each sample's own. Under `exact` products have enough rows for their number not to matter,
    of a sample alone too.
    """

    def __init__(self, module: Cosmos3OmniTransformer, tokenizer: Any, compression: int) -> None:
        self.module = module
        self.tokenizer = tokenizer
        self._compression = compression
        self._least = LeastRows(rowwise(module))

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
            "actions": self._actions,
        }

    @property
    def packed(self) -> Mapping[str, Packed]:
        """The ops whose calls share a forward."""
        return {
            "prefill_sample": self._sample,
            "decode_sample": self._sample,
            "text_kv": self._text_kv,
            "velocities": self._velocities,
        }

    def batch_key(self, op: str, call: ResolvedCall) -> Hashable:
        if op in self.packed and self._least.share(call):
            return size_class(self._rows(op, call))
        return super().batch_key(op, call)

    def forward_batch(self, op: str, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        packed = self.packed
        return packed[op](calls) if op in packed else super().forward_batch(op, calls)

    def _rows(self, op: str, call: ResolvedCall) -> int:
        """How many rows the call has in a packed sequence."""
        return len(_fed(call)) if op != "velocities" else rows_of(self.module, self._step(call))

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

    def _sample(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        texts = [
            Text(
                tokens=_fed(call).to(self._device),
                start=whole(call, "position"),
                past=tensors(call.caches[0]),
            )
            for call in calls
        ]
        least = self._least.of(calls)
        hidden, caches = understand(self.module, texts, least)
        logits = product(self.module.lm_head, torch.cat([rows[-1:] for rows in hidden]), least)
        outputs = []
        for call, text, own, kv in zip(calls, texts, logits, caches, strict=True):
            token, logprob = sample(own, number(call, "temperature"), number(call, "uniform"))
            position = torch.tensor(text.start + len(text.tokens))
            drawn = {"token": token, "logprob": logprob, "position": position}
            outputs.append(ComponentOutput(output=CallOutput(tensors=drawn), caches=(list(kv),)))
        return outputs

    def _text_kv(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        texts = [Text(tokens=tensor(call, "tokens").to(self._device), start=0, past=()) for call in calls]
        _, caches = understand(self.module, texts, self._least.of(calls))
        return [ComponentOutput(output=CallOutput(tensors={}), caches=(list(kv),)) for kv in caches]

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

    def _velocities(self, calls: Sequence[ResolvedCall]) -> list[ComponentOutput]:
        steps, texts = [self._step(call) for call in calls], [tensors(call.caches[0]) for call in calls]
        found = velocities(self.module, steps, texts, self._least.of(calls))
        return [ComponentOutput(output=CallOutput(tensors=one), caches=(None,)) for one in found]

    def _step(self, call: ResolvedCall) -> Step:
        action = None
        if "action" in call.rows:
            action = Action(
                latent=tensor(call, "action"),
                clean=whole(call, "clean_actions"),
                domain=EMBODIMENTS[str(call.rows["domain"])].domain,
            )
        return Step(
            timestep=whole(call, "timestep"),
            fps=number(call, "fps"),
            video=tensor(call, "video"),
            clean=whole(call, "clean"),
            sound=tensor(call, "sound") if "sound" in call.rows else None,
            action=action,
            compression=self._compression,
        )

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


def _fed(call: ResolvedCall) -> Tensor:
    """The tokens to read, int64 [L]: a prompt, or the one written last."""
    if "tokens" in call.rows:
        return tensor(call, "tokens")
    token = call.rows["token"]
    return token.reshape(1) if isinstance(token, Tensor) else torch.tensor([whole(call, "token")])


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
