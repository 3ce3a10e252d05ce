"""Codes of what goes wrong while a request runs."""

from __future__ import annotations

from typing import Final

from fv_core.errors.codes.row import row

RUN: Final = (
    row(
        "FV501", "result is not finite", 1, 500, "non_finite",
        "A component returned NaN or infinity. The request fails before anything of it is shown; the message "
        "names the component, the operation and the step.",
    ),
    row(
        "FV502", "component failed", 1, 500, "component_failed",
        "A component raised while it computed (`FV_DEBUG=1` shows the traceback), or returned something else than the "
        "contract says: a `ComponentOutput` per call, the outputs that the loop reads under their names, each of its "
        "shape and type, and the next version of each cache that is appended to.",
    ),
    row(
        "FV503", "interceptor failed", 1, 500, "interceptor_failed",
        "An interceptor raised, or returned something else than its contract says: a `CallOutput` or None before a "
        "call, a state after it. The request fails; the interceptor stays enabled for others.",
    ),
    row(
        "FV504", "snapshot does not fit", 1, 409, "snapshot_mismatch",
        "A snapshot binds the request, the card's digest, the plugin's version, the weights, the precision, the "
        "kind of device and the interceptors with their parameters. It is resumed only where all of them are "
        "equal, and only from a whole file: a damaged one is refused. Its request is checked as any other is.",
    ),
    row(
        "FV505", "cache reference is stale", 1, 500, "stale_cache",
        "A loop used a cache reference whose version the pool no longer holds. Loops must store the reference "
        "that the last step returned.",
    ),
    row(
        "FV506", "engine is closed", 1, 503, "engine_closed",
        "The engine was closed; its weights and pools are gone. Make a new one.",
    ),
    row(
        "FV507", "interceptor's answer does not fit", 1, 500, "interceptor_failed",
        "What an interceptor answers stands in for what the component computes, so it has the same output names, and "
        "each has the same shape, type and device as when calls like it were computed.",
    ),
    row(
        "FV508", "interceptor changed what it was given", 1, 500, "interceptor_failed",
        "The tensors that a hook is handed are those of the request's own state, or the outputs that its loop is about "
        "to read. A hook returns new tensors and leaves these as they are.",
    ),
    row(
        "FV509", "job is not where this needs it", 1, 500, "job_state",
        "A job is stepped while it is not `done`, its clip is taken when it is, and it is closed last. A step was "
        "asked of one that is done or closed, or a clip of one that is not done.",
    ),
    row(
        "FV510", "cancelled", 130, 499, "cancelled",
        "The caller cancelled. Work stopped within one component call and everything was returned.",
    ),
    row(
        "FV511", "clip is not what was asked for", 1, 500, "wrong_clip",
        "A finished clip has as many frames, as large, as its request was settled to. This one has not: what the card "
        "says of its latent grid does not fit its decoder.",
    ),
    row(
        "FV512", "deadline passed", 1, 504, "deadline_passed",
        "The request was not done by the deadline that its caller gave, and was ended like a cancelled one.",
    ),
    row(
        "FV513", "asynchronous engine out of order", 1, 500, "engine_misused",
        "An asynchronous engine is entered once. It and its jobs are used from the event loop in which it was entered, "
        "except that any may leave it, and one reader at a time waits for a job's events.",
    ),
    row(
        "FV599", "internal error", 1, 500, "internal_error",
        "Something failed that fv did not foresee: a defect. `FV_DEBUG=1` shows the traceback.",
    ),
)  # fmt: skip
