"""What `review` and `audit` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from flows.errors import UsageError
from flows.runs.parameters import BINS, EDGES, IDENTIFIER, OUTPUT_FOLDER, STORE, Parameter


def read_threshold(text: str) -> tuple[str, float]:
    """Return the class and the probability in a text such as quasar=0.9; UsageError for any other text."""
    name, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if not (equals and name and 0 < value < 1):
        raise UsageError(
            f"--threshold: got '{text}', expected a class and a probability between 0 and 1, as in quasar=0.9"
        )
    return name.strip(), value


@dataclass(frozen=True)
class ReviewRequest:
    """Write a list of objects for a human look: VOTable, CSV, and a page with links to sky surveys."""

    out: Annotated[Path, OUTPUT_FOLDER]
    budget: Annotated[
        int | None,
        Parameter(
            words="Number of objects to label, drawn where labels help most and spread over the features; a "
            "list of outliers is written too.",
            least=1,
            metavar="N",
        ),
    ] = None
    outliers: Annotated[
        int,
        Parameter(
            words="Number of objects in the list of outliers that --budget writes.", least=0, metavar="N"
        ),
    ] = 20
    per_class: Annotated[
        bool, Parameter(words="Share the budget equally between the classes that the model gives.")
    ] = False
    by: Annotated[
        str | None,
        Parameter(
            words="Expression between whose bins the budget is shared equally, such as a magnitude.",
            metavar="EXPRESSION",
        ),
    ] = None
    bins: Annotated[int, BINS] = 3
    edges: Annotated[list[float] | None, EDGES] = None
    top: Annotated[
        int | None,
        Parameter(
            words="Flagged objects, the least certain first; default: 100 where nothing else is asked for.",
            least=0,
            metavar="N",
        ),
    ] = None
    draw: Annotated[
        int,
        Parameter(
            words="Objects drawn of all, in proportion to their mutual information, with a weight.",
            least=0,
            metavar="N",
        ),
    ] = 0
    store: Annotated[Path, STORE] = Path("models")
    specification: Annotated[
        Path | None,
        Parameter(
            words="Specification that the copies were classified with, where it was not the model's own.",
            flag="--spec",
            metavar="FILE",
        ),
    ] = None
    identifier: Annotated[str | None, IDENTIFIER] = None
    seed: Annotated[int, Parameter(words="Seed of the random draw.", least=0, metavar="N")] = 0

    @property
    def n_top(self) -> int:
        """How many flagged objects are wanted."""
        return (100 if self.budget is None else 0) if self.top is None else self.top

    @property
    def n_objects(self) -> int:
        """How many objects the list may have."""
        return self.n_top + self.draw if self.budget is None else self.budget

    def check(self) -> None:
        """Raise `UsageError` where options exclude each other."""
        if self.budget is not None and (self.n_top or self.draw):
            raise UsageError(
                "--budget: got --top or --draw too, expected one way to choose; leave them out, or run twice "
                "and keep a copy of the first list"
            )
        if self.budget is None and (self.per_class or self.by is not None):
            raise UsageError("--per-class, --by: got no --budget, which they divide; add --budget N")


@dataclass(frozen=True)
class AuditDrawRequest:
    """Draw objects by design, and write the list that people fill in: VOTable, CSV, and a page with links."""

    out: Annotated[Path, OUTPUT_FOLDER]
    n: Annotated[int, Parameter(words="Objects to draw.", least=10, metavar="N")] = 200
    by: Annotated[
        str | None,
        Parameter(
            words="Expression whose bins are judged one by one, such as a magnitude.", metavar="EXPRESSION"
        ),
    ] = None
    bins: Annotated[int, BINS] = 3
    edges: Annotated[list[float] | None, EDGES] = None
    threshold: Annotated[
        list[tuple[str, float]] | None,
        Parameter(
            words="Class and least probability of a selection that is judged too; may be given several times.",
            metavar="CLASS=P",
            command_line_type=list[str] | None,
            parse=lambda texts: [read_threshold(text) for text in texts],
        ),
    ] = None
    labels: Annotated[
        Path | None,
        Parameter(
            words="Table of objects that have a label already; if they are drawn, nobody needs to look at them again.",
            metavar="FILE",
        ),
    ] = None
    identifier: Annotated[str | None, IDENTIFIER] = None
    seed: Annotated[int, Parameter(words="Seed of the random draw.", least=0, metavar="N")] = 0
    overwrite: Annotated[
        bool, Parameter(words="Replace an earlier list, unless answers have been filled in there.")
    ] = False


@dataclass(frozen=True)
class AuditEstimateRequest:
    """Estimate counts, purity and completeness from the answers, and quote the counts in summary.json."""

    out: Annotated[Path, OUTPUT_FOLDER]
    answers: Annotated[
        list[Path],
        Parameter(
            words="Tables with the column of the identifier and `label`: the list, filled in.",
            metavar="ANSWERS",
            positional=True,
        ),
    ]
    threshold: Annotated[
        list[tuple[str, float]] | None,
        Parameter(
            words="Class and least probability of a selection that is judged too, besides those of the draw.",
            metavar="CLASS=P",
            command_line_type=list[str] | None,
            parse=lambda texts: [read_threshold(text) for text in texts],
        ),
    ] = None
    sets: Annotated[
        float | None,
        Parameter(
            words="Learn prediction sets from the answers: the share of a class's objects that are to keep it.",
            metavar="SHARE",
        ),
    ] = None
