"""What the user reads when something is wrong, and the exit status: the message alone, no traceback."""

from __future__ import annotations

import sys

import typer

from catalogs.remote.urls import scrubbed
from flows.errors import FlowError, Interrupted, Terminated
from flows.orchestration.messages import words_of

__all__ = ["exit_status"]

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130


def exit_status(error: BaseException) -> int:
    """Show an error on standard error and return the exit status for it."""
    if isinstance(error, typer.Exit):
        return int(error.exit_code)
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if hasattr(error, "format_message"):  # Wrong use, as found by Typer or by Click.
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "blr"
        sys.stderr.write(f"blr: error: {error.format_message()} `{command} --help` shows how to use it.\n")
        return WRONG_USE
    status, message = _status_and_message(error)
    sys.stderr.write(f"blr: {message}\n")
    return status


def _status_and_message(error: BaseException) -> tuple[int, str]:
    words = words_of(error)
    match error:
        case KeyboardInterrupt() | typer.Abort():
            return INTERRUPTED, "interrupted; run the same command again to continue"
        case Interrupted() | Terminated():
            return error.exit_status, str(words)
    if words is not None:
        return error.exit_status if isinstance(error, FlowError) else FAILED, f"error: {words}"
    said = scrubbed(f"{type(error).__name__}: {error}")
    return FAILED, f"error: {said}\nThis is an error in blr: `blr --debug ...` shows where. Report it."
