"""Codes of training: its settings, its data, its checkpoints, and what keeps a run from going on."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

TRAINING: Final = (
    row(
        "FV701", "setting of a training is not legal", 2, 400, "invalid_training_config",
        "A training is set by a TOML file and overrides `table.key=value`. Every table and key is declared; one "
        "that is not, or a value of another type or out of range, is refused before anything is loaded.",
    ),
    row(
        "FV702", "training cannot be resumed", 2, 409, "cannot_resume",
        "A checkpoint is resumed only whole and only into the run that it is of: the same model, method, data and "
        "settings, so that the run goes on as if it had never stopped. Settings that decide nothing of the weights may "
        "differ; others are accepted with `resume.override=true`, and are always told.",
    ),
    row(
        "FV703", "gradient does not reach a parameter", 1, 500, "gradient_coverage",
        "At the first step of a run every parameter that is to be trained must get a gradient, all of it finite. One "
        "without was to be trained and would not have been: a module that the loss does not use, or a kernel that "
        "gives none at this length.",
    ),
    row(
        "FV704", "model cannot be trained so", 2, 400, "not_trainable",
        "A method trains what a card declares: components by their ids, through a loop along a flow that computes each "
        "step from its rows. The model lacks what the method needs.",
    ),
    row(
        "FV705", "training is not finite", 1, 500, "training_not_finite",
        "The loss or its gradient was NaN or infinite. The step was not taken, the weights are those of the step "
        "before and nothing was saved. Lower the learning rate, clip, or look at the samples that the message names; "
        "`train.not_finite=\"skip\"` leaves such steps out and counts them.",
    ),
)  # fmt: skip
