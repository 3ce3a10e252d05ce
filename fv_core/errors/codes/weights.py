"""Codes of weights that are absent, damaged, or another model's."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

WEIGHTS: Final = (
    row(
        "FV251", "weights are not on this machine", 3, 503, "weights_missing",
        "fv never downloads unasked. `fv weights pull ID` fetches them, size first; `--weights PATH` uses a "
        "folder you already have.",
    ),
    row(
        "FV252", "weights file is missing", 3, 503, "weights_damaged",
        "The folder is there but a file that its layout requires is not: a config, an index, or a shard that "
        "the index names.",
    ),
    row(
        "FV253", "weights file is damaged", 3, 503, "weights_damaged",
        "The file's header cannot be read, the file is shorter than its header says (an interrupted download or "
        "copy), or a config or tokenizer holds what the component's library cannot use. `fv weights verify ID` checks "
        "all files; `fv weights pull ID` fetches what is wrong again.",
    ),
    row(
        "FV254", "weights are not those of this model", 3, 503, "weights_mismatch",
        "The folder's config file gives another value than the card for a key that the card states, the architecture "
        "has another number of parameters than the card states, or a tensor of the files is missing, unexpected or of "
        "another shape. All of it is checked on config and headers, before any tensor is read and before any compute.",
    ),
    row(
        "FV255", "weights cannot be pulled", 3, 503, "weights_unavailable",
        "The hub refused, is offline (`HF_HUB_OFFLINE`), or does not know the repository or revision. Gated "
        "repositories need a token: `hf auth login` or `HF_TOKEN`.",
    ),
    row(
        "FV256", "card has nothing to pull", 2, 400, "weights_embedded",
        "The card's weights ship with its plugin or are made on load; there is no repository to pull from.",
    ),
    row(
        "FV257", "weights cannot be made from a seed", 3, 503, "weights_not_seeded",
        "Seeded weights are drawn from a generator of their own, so that nothing else in the process changes them or "
        "is changed by them. An initialisation drew with an operation that takes no generator.",
    ),
    row(
        "FV258", "weights cannot be converted", 2, 400, "weights_not_convertible",
        "`fv weights convert` makes a safetensors folder of a pickle that a model's weights were published as. The "
        "model names no converter, or the file is not a pickle of tensors alone: one that holds code is not opened.",
    ),
    row(
        "FV259", "stored weights are corrupted", 3, 503, "weights_damaged",
        "Weights that sleep are stored with a checksum over their names, types, shapes and bytes, which is compared "
        "when they wake. These are not what was stored, so the component sleeps on. Unloading it with `discard=True` "
        "lets it be loaded again; changes that training made to it are lost then.",
    ),
)  # fmt: skip
