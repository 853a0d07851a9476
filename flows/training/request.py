"""What `train` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flows.runs.parameters import STORE, THREADS, Parameter

if (
    TYPE_CHECKING
):  # the command line reads these annotations, and does not wait for what a specification needs
    from flows.specification.specification import Specification

__all__ = ["TrainRequest"]


@dataclass(frozen=True)
class TrainRequest:
    """What is to be trained, and where the model goes."""

    specification: Annotated[
        "Specification | Path",
        Parameter(
            words="What to train: the path of a specification, a TOML file; a form may hold it itself.",
            metavar="SPEC",
            positional=True,
            asked=Path,
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    overwrite: Annotated[
        bool, Parameter(words="Train again where the same model is in the store already.")
    ] = False
    limit: Annotated[
        int | None, Parameter(words="A trial: read that many rows, and keep nothing.", least=1, metavar="N")
    ] = None
    threads: Annotated[int | None, THREADS] = None
