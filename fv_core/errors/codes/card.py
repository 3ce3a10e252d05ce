"""Codes of cards that break a load-time rule."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

CARD: Final = (
    row(
        "FV201", "recipe assumes an undeclared loop", 3, 503, "card_invalid",
        "A recipe is trained for one loop, named by its semantics id in `recipe.assumes_loop`. The card must "
        "bind a loop with exactly that semantics; weights under another loop give plausible but wrong videos.",
    ),
    row(
        "FV202", "loop does not offer the semantics", 3, 503, "card_invalid",
        "A semantics id is owned by the loop class. The class named in `LoopSpec.loop` does not implement the "
        "id named in `LoopSpec.semantics`.",
    ),
    row(
        "FV203", "sampler facts contradict the recipe", 3, 503, "card_invalid",
        "Steps, sigma rule, shift and guidance are facts of the recipe. Values out of range, an unknown sigma "
        "rule, or weights made for a fixed number of steps under a loop or limits of another number are refused "
        "when the card loads.",
    ),
    row(
        "FV204", "card refers to something it does not have", 3, 503, "card_invalid",
        "A program names a loop, a component or a field of the request, or a loop binds a component, that is not "
        "there; or a loop's roles are not bound exactly: one is left out, or one is bound that it would ignore.",
    ),
    row(
        "FV205", "program reads a value nothing writes", 3, 503, "card_invalid",
        "Every input of a program node must be a request field or the output of an earlier node that runs "
        "whenever the reader needs it.",
    ),
    row(
        "FV206", "loop parameters are not legal", 3, 503, "card_invalid",
        "`LoopSpec.params` is read into the loop's typed parameters; an unknown key or a wrong value is refused, and "
        "so is a parameter in `card.params` that no loop reads.",
    ),
    row(
        "FV207", "defaults break the card's own limits", 3, 503, "card_invalid",
        "A default of the card (size, frames, frame rate, precision, a parameter) does not satisfy the card's own "
        "rules, its limits allow sizes off the latent grid, or a limit is none that a request could meet.",
    ),
    row(
        "FV208", "recipe's precision is not the card's", 3, 503, "card_invalid",
        "`recipe.precision` is the precision that the weights were made in. A card whose `precision.legal` leaves it "
        "out could never run the weights as they were made.",
    ),
    row(
        "FV209", "parity is less than the recipe requires", 3, 503, "card_invalid",
        "`recipe.consistency_required` names a rung of the parity ladder, C0 to C4. The card must claim that rung or "
        "a higher one in `parity.rungs`.",
    ),
    row(
        "FV210", "parallel plan is not legal", 3, 503, "card_invalid",
        "The degree of every axis is a whole number from 1 up; classifier-free guidance has two branches, so that "
        "`cfgp` is 1 or 2.",
    ),
    row(
        "FV211", "joint guidance beside a guidance group", 3, 503, "card_invalid",
        "A loop with `cfg: joint` computes both guidance branches in one forward; a `cfgp` group computes them on "
        "two devices. A card may do one of the two, never both.",
    ),
    row(
        "FV212", "patch pipelining under a causal loop", 3, 503, "card_invalid",
        "`pp_patch` reuses stale activations of other patches from the step before. A causal or autoregressive loop "
        "never has that step, so the result would be wrong.",
    ),
    row(
        "FV213", "parallel axis has no implementation", 3, 503, "card_invalid",
        "The axis is known but this fv-core cannot run it. It is refused by name rather than run on one device.",
    ),
    row(
        "FV214", "step skipping on a few-step recipe", 3, 503, "card_invalid",
        "The interceptor may answer a step without computing it. Weights distilled to a fixed number of steps need "
        "every one of them.",
    ),
    row(
        "FV215", "program has a node id twice", 3, 503, "card_invalid",
        "Snapshots, events and caches tell the nodes of a program apart by their ids.",
    ),
    row(
        "FV216", "id is not legal", 3, 503, "card_invalid",
        "A model id is `<plugin>/<model>`, each of the letters a-z and digits, in words that a single `.`, `_` or `-` "
        "joins; a family is such words. Ids of components, loops, nodes and parameters are letters, digits, `_` and "
        "`-`. They name files and appear in addresses, so nothing else is allowed.",
    ),
    row(
        "FV217", "card value is of another type", 3, 503, "card_invalid",
        "A value of the card is not of the type that its field declares, so that the card's JSON would not give it "
        "back and no rule can judge it. Numbers are finite, and text is such as UTF-8 can hold.",
    ),
    row(
        "FV218", "card claims what cannot be measured", 3, 503, "card_invalid",
        "The ladder of parity is C0 to C4, and this fv-core measures C0 and C1, each of them once, against a reference "
        "that `parity.runner` runs and within a tolerance from 0 up. Any other claim could never be certified, so the "
        "card is refused when it loads rather than when it is checked.",
    ),
    row(
        "FV219", "card offers no task", 3, 503, "card_invalid",
        "`programs` is empty: a model without a task could be listed and loaded, and no request could ask anything of "
        "it.",
    ),
    row(
        "FV220", "card names weights by an illegal name", 3, 503, "card_invalid",
        "`checkpoint.repo` is the name of a repository of the hub and `checkpoint.revision` a whole commit id. Folders "
        "and files of a component lie inside the checkpoint; a name that leads out of it is refused.",
    ),
    row(
        "FV221", "program contradicts itself", 3, 503, "card_invalid",
        "A program states what it cannot keep or what nothing would read: an artifact of an unknown kind, sound "
        "without a sample rate or a rate without sound, one modality twice, the size of an input that has none, a "
        "role in `optional` or `tensors` that the node does not read, or a stream to a loop that takes none.",
    ),
)  # fmt: skip
