"""Turns whatever escapes a component into an error of fv's own, keeping the cause."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import torch

from fv_core.errors import FvError, PluginError, ResourceError, RunError, WeightsError

_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")


def as_fv_error(error: BaseException, where: str, given: str = "") -> FvError:
    """`error` itself if it is fv's; FV402 for failed allocations; FV502 for the rest.

    Args:
        where: the component and operation, or what else was at work.
        given: what it worked on, in words: a wrong shape often shows where it is used.
    """
    if isinstance(error, FvError):
        return error
    fault = _memory(error, where) if _is_out_of_memory(error) else _failed(error, where, given)
    fault.__cause__ = error
    return fault


def unforeseen(error: BaseException, where: str) -> FvError:
    """`error` itself if it is fv's; FV402 for failed allocations; FV599 for the rest."""
    if isinstance(error, FvError) or _is_out_of_memory(error):
        return as_fv_error(error, where)
    fault = RunError(
        "FV599",
        name=where,
        rule=f"failed in a way that fv did not foresee: {type(error).__name__}: {error}",
        remedy="FV_DEBUG=1 shows the traceback.",
    )
    fault.__cause__ = error
    return fault


class contained:  # reads as what it does, as those of contextlib do
    """A block in which what is no `Exception` ends no more than the request at fault: a panic of Rust, or SystemExit.

    Raises:
        RunError: FV502, the block raised such. What a signal raises on the main thread stays what it is.
    """

    __slots__ = ("_where",)  # a dozen are entered in every step: a generator would take three times as long

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        """Nothing is to be prepared."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            return
        signals = isinstance(error, (KeyboardInterrupt, SystemExit))
        if not (signals and threading.current_thread() is threading.main_thread()):
            raise _failed(error, self._where, "") from error


def loading_fault(error: Exception, where: str, files: Sequence[Path]) -> FvError:
    """`error` itself if it is fv's; FV402 for failed allocations; FV253 for files at fault; FV120 for the rest.

    Args:
        where: the component and its model.
        files: what its factory was reading; empty where its weights are made from a seed.
    """
    if isinstance(error, FvError) or _is_out_of_memory(error):
        return as_fv_error(error, where)
    raised = f"{type(error).__name__}: {error}"
    fault = _unreadable(where, files, raised) if files else _unmade(where, raised)
    fault.__cause__ = error
    return fault


def _unreadable(where: str, files: Sequence[Path], raised: str) -> FvError:
    return WeightsError(
        "FV253",
        name=", ".join(map(str, files)),
        rule=f"{where} cannot be made from it ({raised})",
        remedy="Copy or download the files again; `fv weights verify ID` checks every file of a model.",
    )


def _unmade(where: str, raised: str) -> FvError:
    return PluginError(
        "FV120",
        name=where,
        rule=f"its factory raised {raised}",
        remedy="Install the plugin again, or report it to its author. FV_DEBUG=1 shows the traceback.",
    )


def _is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    # The CPU allocator has no exception type of its own.
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


def _memory(error: BaseException, where: str) -> ResourceError:
    return ResourceError(
        "FV402",
        name=where,
        rule=f"ran out of memory: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
        remedy="Use a smaller size, fewer frames, or --offload component.",
    )


def _failed(error: BaseException, where: str, given: str) -> RunError:
    return RunError(
        "FV502",
        name=where,
        rule=f"raised {type(error).__name__}: {error}{f' (given {given})' if given else ''}",
        remedy="FV_DEBUG=1 shows the traceback.",
    )
