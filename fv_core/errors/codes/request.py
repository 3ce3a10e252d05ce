"""Codes of requests and settings that are not legal."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

REQUEST: Final = (
    row(
        "FV300", "command line is not legal", 2, 400, "usage",
        "The command, an option or an argument is unknown, absent, or not of the form that it takes. "
        "`fv COMMAND --help` lists what there is.",
    ),
    row(
        "FV301", "prompt is not usable", 2, 400, "invalid_prompt",
        "A text task needs a prompt with at least one visible character, HTML references such as `&nbsp;` resolved.",
    ),
    row(
        "FV302", "size is off the card's rule", 2, 400, "invalid_size",
        "Width and height must lie on the grid of the model's patches and within its position range. fv does "
        "not round for you.",
    ),
    row(
        "FV303", "frame count is off the card's rule", 2, 400, "invalid_frames",
        "A causal video autoencoder decodes one frame and then groups of frames, so legal counts are "
        "`multiple * k + 1`. fv does not round for you.",
    ),
    row(
        "FV304", "step count is not legal", 2, 400, "invalid_steps",
        "Steps are a whole number within the recipe's range; a few-step recipe takes exactly the count it was "
        "distilled for.",
    ),
    row(
        "FV305", "guidance is not legal", 2, 400, "invalid_guidance",
        "Guidance is a finite number; 1 switches it off and halves the cost. Values below 1 would have no "
        "effect in the reference, so they are refused rather than ignored.",
    ),
    row(
        "FV306", "seed is not legal", 2, 400, "invalid_seed",
        "A seed is a whole number from 0 to 2^64 - 1.",
    ),
    row(
        "FV307", "frame rate is not legal", 2, 400, "invalid_fps",
        "The frame rate is a number from 0.01 to 240; it sets how fast the frames play, not how many "
        "are made.",
    ),
    row(
        "FV308", "inputs are not those that the task reads", 2, 400, "invalid_input",
        "Each task reads a fixed set of inputs beside the prompt. One that it needs and does not get, and one that it "
        "would ignore, are refused.",
    ),
    row(
        "FV309", "model does not offer this task", 2, 400, "unsupported_task",
        "A card offers one program per task; `fv models show ID` lists them.",
    ),
    row(
        "FV310", "unknown parameter", 2, 400, "invalid_parameter",
        "`--set K=V` and `Request.params` take the parameters that the card's loops declare, with their ranges.",
    ),
    row(
        "FV311", "sidecar cannot be repeated", 2, 400, "invalid_sidecar",
        "`--from` repeats a run from its sidecar. The file is not an fv sidecar, or the card it names has "
        "another digest than the installed one.",
    ),
    row(
        "FV312", "device is not usable", 2, 400, "invalid_device",
        "The device name is unknown or torch cannot use it on this machine.",
    ),
    row(
        "FV313", "precision is not usable", 2, 400, "invalid_dtype",
        "The card lists the precisions it was made for; `auto` takes the card's choice for the device.",
    ),
    row(
        "FV314", "numerics do not allow this", 2, 400, "invalid_numerics",
        "`reference` and `exact` promise bits; whatever alters the distribution or shares a forward in another "
        "way than the reference is refused under them.",
    ),
    row(
        "FV315", "output path is not usable", 2, 400, "invalid_output",
        "The output exists (`--force` replaces it), its folder is missing or not writable, or its suffix names "
        "no format that fv writes. Or a folder for stored jobs holds other files: an engine removes what a crash left "
        "half written there, so it takes only a folder that is new, empty or a store already.",
    ),
    row(
        "FV316", "setting is not legal", 2, 400, "invalid_setting",
        "A configuration file holds an unknown key or a value of the wrong type, a switch in the environment "
        "(`FV_DEBUG`, `FV_STRICT_PLUGINS`) is neither yes nor no, or an engine is given the same "
        "interceptor twice.",
    ),
    row(
        "FV317", "unknown error code", 2, 404, "code_not_found",
        "`fv explain` knows the codes listed in docs/errors.md.",
    ),
    row(
        "FV318", "interceptor parameters are not legal", 2, 400, "invalid_extension",
        "An engine switches an interceptor on by its id, or by a pair of id and parameters. The message lists the "
        "names, types and defaults that the interceptor declares.",
    ),
    row(
        "FV319", "row limit of a forward is not legal", 2, 400, "invalid_max_batch",
        "`--max-batch`, or `Engine(max_batch=...)`, is the most rows that one forward may have. Memory grows with it; "
        "results under `reference` and `exact` do not depend on it.",
    ),
    row(
        "FV320", "input cannot be read", 2, 400, "invalid_input",
        "Images are PNG, JPEG or WebP; videos MP4, MOV, WebM or MKV; sounds WAV, MP3, FLAC, OGG or MP4; actions a .npy "
        "of floats [T, D]. What a file is is read from its bytes.",
    ),
    row(
        "FV321", "input is too large", 2, 413, "input_too_large",
        "Inputs are measured before they are decoded: a small file can hold a picture that fills the memory.",
    ),
    row(
        "FV322", "adapter cannot be read", 2, 400, "invalid_adapter",
        "A LoRA is a safetensors file with keys of peft, diffusers, ComfyUI or kohya, or a folder that peft saved. It "
        "is absent, not whole, a pickle, has changed since the run that is repeated, or holds what fv does not apply "
        "(DoRA, LoHa, LoKr, biases, whole weights): nothing in it is left out.",
    ),
    row(
        "FV323", "adapter does not bind", 2, 400, "adapter_mismatch",
        "Every layer of an adapter must be one layer of the model, of its shape, in a component that the request runs. "
        "The message names those that are not, and the nearest names that there are. An adapter that binds in part "
        "would give a plausible video that nobody asked for.",
    ),
    row(
        "FV324", "adapters are not legal", 2, 400, "invalid_adapter",
        "An adapter has a path and a finite scale, a request names each once, and the model's card says which "
        "components take them.",
    ),
)  # fmt: skip
