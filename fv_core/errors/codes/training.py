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
    row(
        "FV706", "library for training is not installed", 2, 400, "missing_library",
        "What a setting asks for is done by a library that is not installed here. `pip install 'fv-core[train]'` "
        "brings those that fv uses.",
    ),
    row(
        "FV707", "export is not what was trained", 1, 500, "export_mismatch",
        "What is written is read back before it is called written, tensor by tensor, by those who would read it. "
        "Something differed or could not be written, and nothing was left.",
    ),
    row(
        "FV720", "data set cannot be read", 2, 400, "invalid_dataset",
        "Clips come from a folder in which a .txt file of the same name holds each caption, or from a .jsonl or .csv "
        "file that lists files with captions. What was named is none of these, or cannot be read as a whole; single "
        "files that cannot be used are told in the report, and the others are trained on.",
    ),
    row(
        "FV721", "bucket is not legal", 2, 400, "invalid_bucket",
        "A bucket is [frames, height, width], all of which a model's latents must be able to hold: Wan takes 4k+1 "
        "frames and sides that are multiples of 16. Nothing is rounded; the message tells the nearest that is legal.",
    ),
    row(
        "FV722", "no clip to train on", 2, 400, "empty_dataset",
        "Every listed file was dropped: too short for every bucket, without a caption, or unreadable. The message "
        "counts the files by reason.",
    ),
    row(
        "FV723", "clip has changed", 1, 500, "clip_changed",
        "A file is not the one that was measured before the first step. What its run would go on with would be neither "
        "the old clip nor a checked new one.",
    ),
    row(
        "FV724", "cached features are not usable", 1, 500, "cache_unusable",
        "A file of the cache of latents and embeddings is damaged, or holds what another call gave: of another "
        "geometry, clip, model or version. Each file names its whole key, which is compared before use, as shapes are.",
    ),
)  # fmt: skip
