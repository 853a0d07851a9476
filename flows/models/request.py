"""What `promote` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from flows.runs.parameters import STORE, Parameter

MARGIN = 0.005
"""Nats an object by which a challenger has to be better, unless somebody says otherwise."""

A_DAY = 86_400


@dataclass(frozen=True)
class PromoteRequest:
    """Put a model in the champion's place, reject it (--reject), or undo the last promotion (--undo)."""

    model: Annotated[
        str,
        Parameter(
            words="NAME@VERSION, or NAME for the newest of its versions.",
            metavar="NAME[@VERSION]",
            positional=True,
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    how: Annotated[
        Literal["ask", "better", "now"],
        Parameter(
            words="Ask a person on the page of this run; promote by rule, if the model is better; or promote now.",
            flag=None,
        ),
    ] = "ask"
    margin: Annotated[
        float,
        Parameter(
            words="Nats an object by which the log loss on objects that neither has seen has to be better, by rule.",
            least=0,
            metavar="NATS",
        ),
    ] = MARGIN
    why: Annotated[str | None, Parameter(words="Reason, for the champion's log.", metavar="TEXT")] = None
    by: Annotated[
        str | None,
        Parameter(
            words="Name of the person who decides, for the log; default: the user of the command line.",
            metavar="PERSON",
        ),
    ] = None
    release: Annotated[
        Path | None,
        Parameter(
            words="Folder of the last release, for what would change in it; default: the specification's, if it is "
            "there.",
            metavar="DIR",
        ),
    ] = None
    timeout: Annotated[
        int, Parameter(words="Seconds that the person has for an answer.", least=1, flag=None)
    ] = A_DAY
