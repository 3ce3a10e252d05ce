"""The registry of error codes: exit code, HTTP status and wire code of each, and what `fv explain` says.

Exit codes: 1 the work failed, 2 usage, 3 plugin, card or weights cannot be loaded, 4 resources refused,
130 cancelled. The wire code is the `type` field of an OpenAI-style error body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCode:
    """What one code means everywhere it can surface."""

    code: str
    title: str
    exit_code: int
    http_status: int
    wire_code: str
    explanation: str


def _row(
    code: str, title: str, exit_code: int, http_status: int, wire_code: str, explanation: str
) -> ErrorCode:
    return ErrorCode(
        code=code,
        title=title,
        exit_code=exit_code,
        http_status=http_status,
        wire_code=wire_code,
        explanation=explanation,
    )


_PLUGIN = (
    _row(
        "FV101", "unknown model", 2, 404, "model_not_found",
        "No installed plugin offers a card with this id. A model id is `<plugin>/<model>`; the plugin is found "
        "through the entry-point group `fv`. `fv models` lists what is installed.",
    ),
    _row(
        "FV102", "plugin cannot be imported", 3, 503, "plugin_unavailable",
        "Importing the plugin's package raised. The plugin is left out and the others keep working; "
        "`FV_DEBUG=1` shows the traceback. Reinstalling the distribution named in the message usually cures it.",
    ),
    _row(
        "FV103", "plugin speaks another API", 3, 503, "plugin_unavailable",
        "A plugin declares `fv_api = <int>` in its `__init__`; it must equal the API number of the installed "
        "fv-core. Install a plugin version made for this core, or the core the plugin was made for.",
    ),
    _row(
        "FV104", "plugin breaks its own contract", 3, 503, "plugin_unavailable",
        "A record is of the wrong type, lies outside the plugin's namespace, appears twice, or says what cannot be. "
        "Nothing of the plugin is stored until all of it is right.",
    ),
    _row(
        "FV105", "reference cannot be resolved", 3, 503, "plugin_unavailable",
        "Cards name code by `module:attribute` strings that are imported when they are needed. This one does "
        "not import, or has no such attribute.",
    ),
    _row(
        "FV106", "no default model", 2, 400, "model_required",
        "No model was named, `wan21/tiny` is not installed, and the installed cards with embedded weights are "
        "none or several, so there is no default to fall back to. Name one with `--model`.",
    ),
    _row(
        "FV107", "unknown interceptor", 2, 400, "extension_not_found",
        "No installed plugin offers an interceptor with this id.",
    ),
    _row(
        "FV108", "two distributions claim one plugin name", 3, 503, "plugin_unavailable",
        "The name of an entry point in group `fv` is the namespace of a plugin's ids, so two installed distributions "
        "must not use the same one. Neither is loaded; uninstalling either cures it.",
    ),
    _row(
        "FV109", "plugin needs another fv-core", 3, 503, "plugin_unavailable",
        "The plugin's own metadata (`Requires-Dist`) excludes the installed fv-core: pip prints such a conflict and "
        "installs all the same. It is told from metadata, before anything of the plugin runs.",
    ),
    _row(
        "FV110", "editable source does not match its metadata", 3, 503, "plugin_unavailable",
        "The plugin was installed with `pip install -e FOLDER` and that folder is gone, or its pyproject.toml now "
        "declares other entry points than the installed metadata. Install it again, or uninstall it.",
    ),
    _row(
        "FV111", "plugin is blocked", 3, 503, "plugin_blocked",
        "`FV_PLUGINS` lists the plugins that may be loaded (an empty value: none), and this one is not among them.",
    ),
    _row(
        "FV112", "FV_PLUGINS names an unknown plugin", 3, 503, "plugin_unavailable",
        "Every name in `FV_PLUGINS` must be that of an installed plugin, so that a misspelt one does not quietly "
        "leave a plugin out.",
    ),
    _row(
        "FV113", "unknown plugin", 2, 404, "plugin_not_found",
        "No installed distribution declares an entry point of this name in group `fv`. `fv plugins` lists them.",
    ),
    _row(
        "FV114", "plugin lacks a dependency", 3, 503, "plugin_unavailable",
        "The plugin is there but a module that it imports is not: a dependency was removed, or belongs to an extra "
        "that was not installed. The hint names the extra where the plugin's metadata tells it.",
    ),
    _row(
        "FV115", "plugin implements an unknown hook", 3, 503, "plugin_unavailable",
        "A function marked with `hookimpl` has a name that is not one of fv's hooks; most often it is misspelt.",
    ),
    _row(
        "FV116", "hook asks for unknown arguments", 3, 503, "plugin_unavailable",
        "fv's hooks take no arguments: they return data and have no side effects.",
    ),
    _row(
        "FV117", "hook raised", 3, 503, "plugin_unavailable",
        "A hook raised instead of returning its records. `fv plugins show NAME` prints the traceback.",
    ),
    _row(
        "FV118", "plugin differs between processes", 3, 503, "plugin_unavailable",
        "A worker process is told which plugins, in which versions, its parent loaded. It found another version, "
        "or none, so it would compute with other code.",
    ),
    _row(
        "FV119", "plugin metadata cannot be read", 3, 503, "plugin_unavailable",
        "The metadata of an installed plugin, or the pyproject.toml of a plugin folder, is absent or malformed.",
    ),
    _row(
        "FV120", "component cannot be made", 3, 503, "plugin_unavailable",
        "The factory that a card names for a component raised while it made one whose weights come from no folder, so "
        "the plugin or a file that it ships is at fault. With a folder the files are named instead (FV253).",
    ),
)  # fmt: skip

_CARD = (
    _row(
        "FV201", "recipe assumes an undeclared loop", 3, 503, "card_invalid",
        "A recipe is trained for one loop, named by its semantics id in `recipe.assumes_loop`. The card must "
        "bind a loop with exactly that semantics; weights under another loop give plausible but wrong videos.",
    ),
    _row(
        "FV202", "loop does not offer the semantics", 3, 503, "card_invalid",
        "A semantics id is owned by the loop class. The class named in `LoopSpec.loop` does not implement the "
        "id named in `LoopSpec.semantics`.",
    ),
    _row(
        "FV203", "sampler facts contradict the recipe", 3, 503, "card_invalid",
        "Steps, sigma rule, shift and guidance are facts of the recipe. Values out of range, an unknown sigma "
        "rule, or weights made for a fixed number of steps under a loop or limits of another number are refused "
        "when the card loads.",
    ),
    _row(
        "FV204", "card refers to something it does not have", 3, 503, "card_invalid",
        "A program names a loop, a component or a field of the request, or a loop binds a component, that is not "
        "there; or a loop's roles are not bound exactly: one is left out, or one is bound that it would ignore.",
    ),
    _row(
        "FV205", "program reads a value nothing writes", 3, 503, "card_invalid",
        "Every input of a program node must be a request field or the output of an earlier node that runs "
        "whenever the reader needs it.",
    ),
    _row(
        "FV206", "loop parameters are not legal", 3, 503, "card_invalid",
        "`LoopSpec.params` is read into the loop's typed parameters; an unknown key or a wrong value is refused, and "
        "so is a parameter in `card.params` that no loop reads.",
    ),
    _row(
        "FV207", "defaults break the card's own limits", 3, 503, "card_invalid",
        "A default of the card (size, frames, frame rate, precision, a parameter) does not satisfy the card's own "
        "rules, or its limits allow sizes off the latent grid.",
    ),
    _row(
        "FV208", "recipe's precision is not the card's", 3, 503, "card_invalid",
        "`recipe.precision` is the precision that the weights were made in. A card whose `precision.legal` leaves it "
        "out could never run the weights as they were made.",
    ),
    _row(
        "FV209", "parity is less than the recipe requires", 3, 503, "card_invalid",
        "`recipe.consistency_required` names a rung of the parity ladder, C0 to C4. The card must claim that rung or "
        "a higher one in `parity.rungs`.",
    ),
    _row(
        "FV210", "parallel plan is not legal", 3, 503, "card_invalid",
        "The degree of every axis is a whole number from 1 up; classifier-free guidance has two branches, so that "
        "`cfgp` is 1 or 2.",
    ),
    _row(
        "FV211", "joint guidance beside a guidance group", 3, 503, "card_invalid",
        "A loop with `cfg: joint` computes both guidance branches in one forward; a `cfgp` group computes them on "
        "two devices. A card may do one of the two, never both.",
    ),
    _row(
        "FV212", "patch pipelining under a causal loop", 3, 503, "card_invalid",
        "`pp_patch` reuses stale activations of other patches from the step before. A causal or autoregressive loop "
        "never has that step, so the result would be wrong.",
    ),
    _row(
        "FV213", "parallel axis has no implementation", 3, 503, "card_invalid",
        "The axis is known but this fv-core cannot run it. It is refused by name rather than run on one device.",
    ),
    _row(
        "FV214", "step skipping on a few-step recipe", 3, 503, "card_invalid",
        "The interceptor may answer a step without computing it. Weights distilled to a fixed number of steps need "
        "every one of them.",
    ),
    _row(
        "FV215", "program has a node id twice", 3, 503, "card_invalid",
        "Snapshots, events and caches tell the nodes of a program apart by their ids.",
    ),
    _row(
        "FV216", "model id is not legal", 3, 503, "card_invalid",
        "A model id is `<plugin>/<model>`, each of the letters a-z and digits, in words that a single `.`, `_` or `-` "
        "joins. It names files and appears in addresses, so nothing else is allowed.",
    ),
    _row(
        "FV217", "card value is of another type", 3, 503, "card_invalid",
        "A value of the card is not of the type that its field declares, so that the card's JSON would not give it back "
        "and no rule can judge it.",
    ),
    _row(
        "FV218", "card claims a rung that cannot be measured", 3, 503, "card_invalid",
        "The ladder of parity is C0 to C4, and this fv-core measures C0 and C1. A claim of a higher rung could never be "
        "certified, so the card is refused when it loads rather than when it is checked.",
    ),
    _row(
        "FV251", "weights are not on this machine", 3, 503, "weights_missing",
        "fv never downloads unasked. `fv weights pull ID` fetches them, size first; `--weights PATH` uses a "
        "folder you already have.",
    ),
    _row(
        "FV252", "weights file is missing", 3, 503, "weights_damaged",
        "The folder is there but a file that its layout requires is not: a config, an index, or a shard that "
        "the index names.",
    ),
    _row(
        "FV253", "weights file is damaged", 3, 503, "weights_damaged",
        "The file's header cannot be read, the file is shorter than its header says (an interrupted download or "
        "copy), or a config or tokenizer holds what the component's library cannot use. `fv weights verify ID` checks "
        "all files; `fv weights pull ID` fetches what is wrong again.",
    ),
    _row(
        "FV254", "weights are not those of this model", 3, 503, "weights_mismatch",
        "The folder's config file gives another value than the card for a key that the card states, the architecture "
        "has another number of parameters than the card states, or a tensor of the files is missing, unexpected or of "
        "another shape. All of it is checked on config and headers, before any tensor is read and before any compute.",
    ),
    _row(
        "FV255", "weights cannot be pulled", 3, 503, "weights_unavailable",
        "The hub refused, is offline (`HF_HUB_OFFLINE`), or does not know the repository or revision. Gated "
        "repositories need a token: `hf auth login` or `HF_TOKEN`.",
    ),
    _row(
        "FV256", "card has nothing to pull", 2, 400, "weights_embedded",
        "The card's weights ship with its plugin or are made on load; there is no repository to pull from.",
    ),
    _row(
        "FV257", "weights cannot be made from a seed", 3, 503, "weights_not_seeded",
        "Seeded weights are drawn from a generator of their own, so that nothing else in the process changes them or is "
        "changed by them. An initialisation drew with an operation that takes no generator.",
    ),
)  # fmt: skip

_REQUEST = (
    _row(
        "FV300", "command line is not legal", 2, 400, "usage",
        "The command, an option or an argument is unknown, absent, or not of the form that it takes. "
        "`fv COMMAND --help` lists what there is.",
    ),
    _row(
        "FV301", "prompt is not usable", 2, 400, "invalid_prompt",
        "A text task needs a prompt with at least one visible character, HTML references such as `&nbsp;` resolved.",
    ),
    _row(
        "FV302", "size is off the card's rule", 2, 400, "invalid_size",
        "Width and height must lie on the grid of the model's patches and within its position range. fv does "
        "not round for you.",
    ),
    _row(
        "FV303", "frame count is off the card's rule", 2, 400, "invalid_frames",
        "A causal video autoencoder decodes one frame and then groups of frames, so legal counts are "
        "`multiple * k + 1`. fv does not round for you.",
    ),
    _row(
        "FV304", "step count is not legal", 2, 400, "invalid_steps",
        "Steps are a whole number within the recipe's range; a few-step recipe takes exactly the count it was "
        "distilled for.",
    ),
    _row(
        "FV305", "guidance is not legal", 2, 400, "invalid_guidance",
        "Guidance is a finite number; 1 switches it off and halves the cost. Values below 1 would have no "
        "effect in the reference, so they are refused rather than ignored.",
    ),
    _row(
        "FV306", "seed is not legal", 2, 400, "invalid_seed",
        "A seed is a whole number from 0 to 2^64 - 1.",
    ),
    _row(
        "FV307", "frame rate is not legal", 2, 400, "invalid_fps",
        "The frame rate is a number from 0.01 to 240; it sets how fast the frames play, not how many "
        "are made.",
    ),
    _row(
        "FV308", "task does not read this input", 2, 400, "invalid_input",
        "Each task reads a fixed set of inputs. An input that the task would ignore is refused.",
    ),
    _row(
        "FV309", "model does not offer this task", 2, 400, "unsupported_task",
        "A card offers one program per task; `fv models show ID` lists them.",
    ),
    _row(
        "FV310", "unknown parameter", 2, 400, "invalid_parameter",
        "`--set K=V` and `Request.params` take the parameters that the card's loops declare, with their ranges.",
    ),
    _row(
        "FV311", "sidecar cannot be repeated", 2, 400, "invalid_sidecar",
        "`--from` repeats a run from its sidecar. The file is not an fv sidecar, or the card it names has "
        "another digest than the installed one.",
    ),
    _row(
        "FV312", "device is not usable", 2, 400, "invalid_device",
        "The device name is unknown or torch cannot use it on this machine.",
    ),
    _row(
        "FV313", "precision is not usable", 2, 400, "invalid_dtype",
        "The card lists the precisions it was made for; `auto` takes the card's choice for the device.",
    ),
    _row(
        "FV314", "numerics do not allow this", 2, 400, "invalid_numerics",
        "`reference` and `exact` promise bits; whatever alters the distribution or shares a forward in another "
        "way than the reference is refused under them.",
    ),
    _row(
        "FV315", "output path is not usable", 2, 400, "invalid_output",
        "The output exists (`--force` replaces it), its folder is missing or not writable, or its suffix names "
        "no format that fv writes.",
    ),
    _row(
        "FV316", "setting is not legal", 2, 400, "invalid_setting",
        "A configuration file holds an unknown key or a value of the wrong type, or an engine is given the same "
        "interceptor twice.",
    ),
    _row(
        "FV317", "unknown error code", 2, 404, "code_not_found",
        "`fv explain` knows the codes listed in docs/errors.md.",
    ),
    _row(
        "FV318", "interceptor parameters are not legal", 2, 400, "invalid_extension",
        "An engine switches an interceptor on by its id, or by a pair of id and parameters. The message lists the "
        "names, types and defaults that the interceptor declares.",
    ),
)  # fmt: skip

_RESOURCE = (
    _row(
        "FV401", "does not fit in memory", 4, 503, "insufficient_memory",
        "The predicted peak is more than the device has free. `--dry-run` prints the figures; a smaller size, "
        "fewer frames or `--offload component` lowers them.",
    ),
    _row(
        "FV402", "ran out of memory", 4, 503, "out_of_memory",
        "An allocation failed while the request ran. Its memory has been returned; other requests go on.",
    ),
    _row(
        "FV403", "disk is full", 4, 507, "disk_full",
        "The disk filled up while the file was written. The partial file has been removed.",
    ),
)  # fmt: skip

_RUN = (
    _row(
        "FV501", "result is not finite", 1, 500, "non_finite",
        "A component returned NaN or infinity. The request fails before anything of it is shown; the message "
        "names the component, the operation and the step.",
    ),
    _row(
        "FV502", "component failed", 1, 500, "component_failed",
        "A component raised while it computed. `FV_DEBUG=1` shows the traceback.",
    ),
    _row(
        "FV503", "interceptor failed", 1, 500, "interceptor_failed",
        "An interceptor raised, or returned something else than its contract says: a `CallOutput` or None before a "
        "call, a state after it. The request fails; the interceptor stays enabled for others.",
    ),
    _row(
        "FV504", "snapshot does not fit", 1, 409, "snapshot_mismatch",
        "A snapshot binds the request, the card's digest, the plugin's version, the weights, the precision, the "
        "kind of device and the interceptors with their parameters. It is resumed only where all of them are "
        "equal, and only from a whole file: a damaged one is refused.",
    ),
    _row(
        "FV505", "cache reference is stale", 1, 500, "stale_cache",
        "A loop used a cache reference whose version the pool no longer holds. Loops must store the reference "
        "that the last step returned.",
    ),
    _row(
        "FV506", "engine is closed", 1, 503, "engine_closed",
        "The engine was closed; its weights and pools are gone. Make a new one.",
    ),
    _row(
        "FV507", "interceptor's answer does not fit", 1, 500, "interceptor_failed",
        "What an interceptor answers stands in for what the component computes, so it has the same output names, and "
        "each has the same shape, type and device as when calls like it were computed.",
    ),
    _row(
        "FV508", "interceptor changed what it was given", 1, 500, "interceptor_failed",
        "The tensors that a hook is handed are those of the request's own state, or the outputs that its loop is about "
        "to read. A hook returns new tensors and leaves these as they are.",
    ),
    _row(
        "FV510", "cancelled", 130, 499, "cancelled",
        "The caller cancelled. Work stopped within one component call and everything was returned.",
    ),
    _row(
        "FV599", "internal error", 1, 500, "internal_error",
        "Something failed that fv did not foresee: a defect. `FV_DEBUG=1` shows the traceback.",
    ),
)  # fmt: skip

_PARITY = (
    _row(
        "FV601", "model is not certified here", 3, 503, "not_certified",
        "Certified runs were asked for. A certificate binds the card, the plugin's version, the weights, the "
        "precision, the device, the number of threads and the library versions; every rung that the card claims "
        "needs one that passed and of which nothing has changed since. `fv parity certify ID` "
        "measures and writes them.",
    ),
    _row(
        "FV602", "rung is not implemented", 2, 400, "rung_not_implemented",
        "The ladder is C0 component, C1 trajectory, C2 behaviour, C3 distribution and C4 artifact. fv measures C0 and "
        "C1; a claim of a higher one is refused by name, because nothing would check it.",
    ),
    _row(
        "FV603", "nothing to compare with", 2, 400, "no_reference",
        "Parity is measured against the reference that the card's claim names and can run. This card makes no claim, "
        "or names no runner. `fv parity check ID --record FILE` and `--against FILE` compare runs of fv itself.",
    ),
    _row(
        "FV604", "reference cannot run", 3, 503, "reference_unavailable",
        "The reference is absent, has another version than the card claims parity with, or raised. A claim names a "
        "version because another one may compute something else.",
    ),
    _row(
        "FV605", "recording cannot be read", 2, 400, "invalid_recording",
        "The file is not a recording of this format, is damaged, or was made by another model.",
    ),
)  # fmt: skip

CODES: Final[dict[str, ErrorCode]] = {
    row.code: row for group in (_PLUGIN, _CARD, _REQUEST, _RESOURCE, _RUN, _PARITY) for row in group
}
