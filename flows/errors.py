"""What can go wrong above catalogues and numerics, by what the caller can do about it.

Every message says what was got, what was expected and what to do.
"""

from __future__ import annotations


def of_files(error: OSError) -> str:
    """Return what the system said of a file, and what to do where it is not allowed."""
    place = f"{error.filename}: " if error.filename else ""
    remedy = "; check its owner and permissions, and those of its folders"
    return f"{place}{error.strerror or error}{remedy if isinstance(error, PermissionError) else ''}"


NO_MEMORY = ("can't start new thread", "Failed to launch worker thread", "failed to map segment")
"""What Python, Arrow and the system's loader say where a limit of memory or of processes is reached."""


def lacks_memory(error: BaseException) -> bool:
    """Say whether the cause of an error is a limit of memory or of processes: no file is at fault then."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY)


class FlowError(Exception):
    """An error that the user can correct; the command line prints its message without a traceback.

    Examples
    --------
    >>> flows.classify_table({}, model="morphology", store="no store")
    Traceback (most recent call last):
        ...
    flows.errors.ModelError: ...
    """

    exit_status = 1


class UsageError(FlowError):
    """The command was asked for something that it does not do."""

    exit_status = 2


class SpecificationError(UsageError):
    """The specification is malformed, or names what is not there; the message names file and key."""


class TrainingError(FlowError):
    """The labelled rows cannot carry a fit: one class, a class without rows, a feature never measured."""


class ModelError(FlowError):
    """A model is not in the store, is damaged, or was written by a newer version."""


class DocumentError(FlowError):
    """A JSON file of ours is damaged, or is not ours."""


class OutputFolderError(FlowError):
    """The output folder cannot be written, has too little room, or is in use."""


class EngineError(FlowError):
    """The workers that are to do the work cannot be reached, differ from this process, or do not see its files."""


class Interrupted(FlowError):  # noqa: N818 - a wish of the user's, not an error
    """Ctrl-C: what is finished stays, and the message says how to go on."""

    exit_status = 130


class Terminated(BaseException):
    """SIGTERM, or SIGHUP: not an error of the work's, so nothing that handles those may hold it up."""

    exit_status = 143
