"""Says in fv's own errors what the hub's client ran into."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from fv_core.errors import FvError, ResourceError, WeightsError

# The client's HTTP library differs between its versions and is no dependency of fv; its errors have one base.
_HTTPError = cast(type[Exception], HfHubHTTPError.__bases__[0])

_TOKEN = "Log in with `hf auth login`, or set HF_TOKEN to a token that may read it."
_AGAIN = (
    "Check the connection and run the same command again, which goes on where it stopped; "
    "`--weights PATH` uses a folder you have."
)


@contextmanager
def hub_errors(repo: str) -> Iterator[None]:
    """Translates what the client raises inside.

    Raises:
        WeightsError: FV255 with the reason.
        ResourceError: FV403, the disk is full.
    """
    try:
        yield
    except (OSError, HFValidationError, _HTTPError) as error:
        raise _translated(repo, error) from error


def refused(repo: str, rule: str, remedy: str = _AGAIN) -> WeightsError:
    """FV255: the repository cannot be pulled."""
    return WeightsError("FV255", name=f"repository {repo}", rule=rule, remedy=remedy)


def _translated(repo: str, error: BaseException) -> FvError:
    match error:
        case GatedRepoError():
            return refused(repo, "access is gated", f"Ask for access on its page. {_TOKEN}")
        case RepositoryNotFoundError():
            return refused(
                repo, "the hub does not know it, or hides it from you", f"Check its name. {_TOKEN}"
            )
        case RevisionNotFoundError():
            return refused(
                repo, "it does not have the card's revision", "Update the plugin that offers the card."
            )
        case OfflineModeIsEnabled():
            return refused(
                repo, "offline mode is on", "Unset HF_HUB_OFFLINE, or use a folder with `--weights PATH`."
            )
        case LocalEntryNotFoundError() if error.__cause__ is not None:
            return _translated(repo, error.__cause__)
        case HfHubHTTPError() if error.response.status_code in (401, 403):
            return refused(repo, f"the hub refuses the token ({error.response.status_code})", _TOKEN)
        case HfHubHTTPError():
            return refused(repo, f"the hub answered {error.response.status_code}")
        case HFValidationError():
            return refused(repo, "is not a legal repository id", "Report it to the author of the plugin.")
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            return disk_full(f"download of {repo}", "the disk is full")
        case OSError(filename=str(path), strerror=str(reason)):
            return refused(repo, f"{path} cannot be written ({reason})", "Make it writable, or set HF_HOME.")
    return refused(repo, f"the transfer failed ({type(error).__name__}: {error})")


def disk_full(name: str, rule: str) -> ResourceError:
    """FV403."""
    return ResourceError(
        "FV403", name=name, rule=rule, remedy="Free some space, or set HF_HOME to another disk."
    )
