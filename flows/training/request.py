"""The parameters of `train`.  This module evaluates its annotations: `flows.runs.parameters` says why."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flows.runs.parameters import ENGINE, STORE, THREADS, Parameter

# The command line reads these annotations, and should not import the libraries of a specification for that.
if TYPE_CHECKING:
    from flows.specification.specification import Specification


@dataclass(frozen=True)
class TrainRequest:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""

    specification: Annotated[
        "Specification | Path",
        Parameter(
            words="Specification of what to train: a TOML file; in Prefect's form, its content.",
            metavar="SPEC",
            positional=True,
            command_line_type=Path,
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    overwrite: Annotated[bool, Parameter(words="Train again even if the store already has this model.")] = (
        False
    )
    limit: Annotated[
        int | None,
        Parameter(words="A trial: read only this many rows, and keep nothing.", least=1, metavar="N"),
    ] = None
    threads: Annotated[int | None, THREADS] = None
    engine: Annotated[str | None, ENGINE] = None
