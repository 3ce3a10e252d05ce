"""Several requests side by side: each starts, in order, when there is room for it; those that run step together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fv_core.errors import FvError
from fv_core.media import Clip
from fv_core.request import CancelScope, Request
from fv_core.runtime.faults import unforeseen
from fv_core.runtime.job import Job, advance

NO_ROOM_NOW = "FV405"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One request's outcome: a clip, or the error that ended it."""

    request: Request
    clip: Clip | None
    error: FvError | None

    @property
    def ok(self) -> bool:
        return self.error is None


class Together:
    """Drives requests to their results; one that fails leaves the others alone.

    A request that does not fit beside those that run waits, and so do all after it, so that none is passed over for
    ever. It is tried again when one of those has ended, and fails if there is none.

    Args:
        start: takes a request on.
        clip: the clip of a job that is done.
        cancel: cancels all of them; who still waits is not started any more.
    """

    def __init__(
        self, start: Callable[[Request], Job], clip: Callable[[Job], Clip], cancel: CancelScope | None
    ) -> None:
        self._start = start
        self._clip = clip
        self._cancel = cancel
        self._waiting: deque[int] = deque()
        self._going: dict[int, Job] = {}
        self._results: dict[int, Result] = {}

    def run(self, requests: Sequence[Request]) -> list[Result]:
        """One result per request, in input order."""
        self._waiting.extend(range(len(requests)))
        try:
            while self._waiting or self._going:
                self._start_waiting(requests)
                self._step_until_one_ends(requests)
            return [self._results[index] for index in range(len(requests))]
        finally:
            for job in self._going.values():
                job.close()

    def _start_waiting(self, requests: Sequence[Request]) -> None:
        while self._waiting:
            index = self._waiting[0]
            request = requests[index]
            try:
                if self._results and self._cancel is not None:
                    self._cancel.check(f"for {request.model or 'the default model'}, which waited")
                self._going[index] = self._start(request)
            except Exception as error:  # one request's fault, whatever it is, is not its neighbours'
                fault = unforeseen(
                    error, f"the start of a request for {request.model or 'the default model'}"
                )
                if fault.code == NO_ROOM_NOW and self._going:
                    return
                self._results[index] = Result(request=request, clip=None, error=fault)
            self._waiting.popleft()

    def _step_until_one_ends(self, requests: Sequence[Request]) -> None:
        while self._going and not any(job.done for job in self._going.values()):
            advance(tuple(self._going.values()))
        for index, job in tuple(self._going.items()):
            if job.done:
                self._results[index] = self._outcome(requests[index], job)
                job.close()
                del self._going[index]

    def _outcome(self, request: Request, job: Job) -> Result:
        try:
            return Result(request=request, clip=self._clip(job), error=None)
        except Exception as error:
            return Result(request=request, clip=None, error=unforeseen(error, f"the clip of {job.run.id}"))
