"""Errors in reaching a URL, translated into our own; drivers of file systems raise many kinds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from catalogs.errors import CatalogError, FormatError
from catalogs.remote.urls import has_secret, scrubbed, shown

__all__ = ["UnreachableError", "speaking_of"]

NOT_THERE = {404, 410}
NOT_ALLOWED = {401, 402, 403, 407}


class UnreachableError(CatalogError):
    """The file may be there, but did not come: no answer, an error of the server's, a broken connection."""


@contextmanager
def speaking_of(url: str) -> Iterator[None]:
    """Say in our words what goes wrong on the way to a URL."""
    try:
        yield
    except CatalogError:
        raise
    except Exception as error:  # noqa: BLE001 -- of each driver's own kinds
        reworded = in_our_words(url, error)
        if reworded is error.__cause__:
            raise reworded from None
        raise reworded from (
            None if has_secret(url) or tells_secrets(error) else error
        )  # a traceback would show it


def tells_secrets(error: BaseException | None) -> bool:
    """Say whether an error, or what it came of, names a URL that may not be shown: a signed one, led on to."""
    while error is not None:
        if scrubbed(str(error)) != str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def in_our_words(url: str, error: Exception) -> CatalogError:
    """Return what a driver's error means."""
    cause = error.__cause__
    if isinstance(cause, CatalogError):
        return cause
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception):
        error = cause  # The driver of http reports every failure as a missing file.
    place, status = shown(url), getattr(error, "status", None)
    if isinstance(error, FileNotFoundError) or status in NOT_THERE:
        return CatalogError(f"there is no {place}; correct the URL")
    if isinstance(error, PermissionError) or status in NOT_ALLOWED:
        why = f"the server answered {status}" if status else scrubbed(str(error))
        return CatalogError(f"{place} may not be read: {why}; check the credentials that its driver uses")
    if isinstance(error, NotADirectoryError | IsADirectoryError):
        return FormatError(
            f"{place} is a folder instead of a file, or a file instead of a folder; correct the URL"
        )
    if isinstance(status, int):
        return UnreachableError(f"{place} cannot be read: the server answered {status}; try again later")
    why = scrubbed(" ".join(str(error).split())) or type(error).__name__
    return UnreachableError(f"{place} cannot be read: {why}; try again later")
