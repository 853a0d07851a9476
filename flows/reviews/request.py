"""What `review` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from flows.runs.parameters import Parameter

__all__ = ["ReviewRequest"]


@dataclass(frozen=True)
class ReviewRequest:
    """Which objects of annotated catalogues a person is to see."""

    out: Annotated[
        Path,
        Parameter(
            words="Folder that `blr classify` has written.", metavar="OUT", positional=True, written=True
        ),
    ]
    top: Annotated[
        int, Parameter(words="Flagged objects, the least certain first.", least=0, metavar="N")
    ] = 100
    draw: Annotated[
        int,
        Parameter(
            words="Objects drawn of all, in proportion to their mutual information, with a weight.",
            least=0,
            metavar="N",
        ),
    ] = 0
    identifier: Annotated[
        str | None,
        Parameter(
            words="Column that names an object; default: what looks like it.", flag="--id", metavar="COLUMN"
        ),
    ] = None
    seed: Annotated[int, Parameter(words="Seed of the random draw.", least=0, metavar="N")] = 0
