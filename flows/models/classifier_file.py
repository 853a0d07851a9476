"""A classifier of `blr.fit_default` as an ASDF file, for those who train from arrays."""

from __future__ import annotations

from pathlib import Path

from blr.candidates.training import TrainedClassifier
from flows.errors import ModelError
from flows.models.asdf_file import read_tree, write_tree

__all__ = ["read_classifier", "write_classifier"]


def write_classifier(trained: TrainedClassifier, path: Path | str) -> None:
    """Write a classifier of `blr.fit_default` to an ASDF file, whole or not at all.

    Raises
    ------
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> flows.write_classifier(trained, "trained.asdf")  # doctest: +SKIP
    """
    write_tree(trained.to_dict(), Path(path))


def read_classifier(path: Path | str) -> TrainedClassifier:
    """Return the classifier of `write_classifier`.

    Raises
    ------
    ModelError
        If the file is missing, damaged, or holds something else.

    Examples
    --------
    >>> flows.read_classifier("trained.asdf").trust.verdict  # doctest: +SKIP
    'green'
    """
    tree = read_tree(Path(path))
    try:
        return TrainedClassifier.from_dict(tree)
    except Exception as error:  # a damaged file may raise anything
        raise ModelError(
            f"{path}: got a file without a whole classifier ({error}), expected one of flows.write_classifier; "
            "write it again"
        ) from error
