"""The parameters of `census`, `classify`, `reprocess`, `map` and `explain`.

This module evaluates its annotations: `flows.runs.parameters` says why.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from flows.errors import UsageError
from flows.runs.parameters import BINS, EDGES, ENGINE, OUTPUT_FOLDER, STORE, THREADS, Parameter

# The command line reads these annotations, and must not wait for the import of a specification's libraries.
if TYPE_CHECKING:
    from flows.specification.specification import Specification

VERIFY = Parameter(
    words="Hash all inputs and outputs again, even files whose size and time have not changed."
)


def read_shares(text: str) -> str | dict[str, float]:
    """Return "em", or the share of each class in a text such as early=0.3,late=0.7; UsageError for any other text."""
    if text == "em":
        return text
    shares = {}
    for part in text.split(","):
        name, equals, number = part.rpartition("=")
        try:
            shares[name.strip()] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise UsageError(
                f"--class-prior: got '{part}', expected em, or the share of each class as in "
                "early=0.3,late=0.7; write names that contain commas under [shift] of a specification"
            )
    return shares


@dataclass(frozen=True)
class ClassifyRequest:
    """Write annotated copies of catalogues: class probabilities, uncertainties and flags for every row."""

    catalogues: Annotated[
        list[str],
        Parameter(
            words="Catalogues to classify: files, folders, patterns or URLs.",
            metavar="CATALOG",
            positional=True,
        ),
    ]
    model: Annotated[
        str,
        Parameter(
            words="Model to classify with: NAME, for its champion, or NAME@VERSION.", metavar="NAME[@VERSION]"
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    out: Annotated[
        Path,
        Parameter(
            words="Folder for the annotated copies, or URL of one in an object store.",
            metavar="DIR",
            published=True,
            required=True,
        ),
    ] = Path("annotated")
    specification: Annotated[
        "Specification | Path | None",
        Parameter(
            words="Specification whose target, flags and output replace those that the model was trained with.",
            flag="--spec",
            metavar="FILE",
            command_line_type=Path | None,
        ),
    ] = None
    class_prior: Annotated[
        Literal["em"] | dict[str, float] | None,
        Parameter(
            words="Share of each class in these catalogues, where it is not the training's; em estimates the shares.",
            metavar="em|A=X,B=Y",
            command_line_type=str | None,
            parse=read_shares,
        ),
    ] = None
    output_format: Annotated[
        Literal["same", "parquet", "fits"] | None,
        Parameter(
            words="Format of the copies: same (each input's own), or another; default: the specification's.",
            flag="--format",
        ),
    ] = None
    overwrite: Annotated[
        bool,
        Parameter(
            words="Replace what another model or specification wrote, and any other file that has a copy's name."
        ),
    ] = False
    verify: Annotated[bool, VERIFY] = False
    limit: Annotated[
        int | None,
        Parameter(
            words="A trial: score only this many rows of each catalogue, and write nothing.",
            least=1,
            metavar="N",
        ),
    ] = None
    threads: Annotated[int | None, THREADS] = None
    engine: Annotated[str | None, ENGINE] = None


@dataclass(frozen=True)
class ReprocessRequest:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report differences."""

    specification: Annotated[
        "Specification | Path",
        Parameter(
            words="Specification of target, flags and output folder: a TOML file; in Prefect's form, its content.",
            metavar="SPEC",
            positional=True,
            command_line_type=Path,
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    model: Annotated[
        str | None,
        Parameter(
            words="Model to classify with: NAME or NAME@VERSION; default: the champion of the specification's name.",
            metavar="NAME[@VERSION]",
        ),
    ] = None
    out: Annotated[
        Path | None,
        Parameter(
            words="Folder for the annotated copies; default: the specification's.",
            metavar="DIR",
            published=True,
        ),
    ] = None
    verify: Annotated[bool, VERIFY] = False
    threads: Annotated[int | None, THREADS] = None
    engine: Annotated[str | None, ENGINE] = None
    quiet_seconds: Annotated[
        float,
        Parameter(
            words="Seconds without a change after which a file no longer counts as being written.",
            least=0,
            flag="--settle",
            metavar="S",
        ),
    ] = 5.0
    patience: Annotated[
        float,
        Parameter(
            words="Seconds to wait for files that are being written, before the next run gets them.",
            least=0,
            metavar="S",
        ),
    ] = 30.0


@dataclass(frozen=True)
class ExplainRequest:
    """Say why an object has its class: what each feature contributes, and which labelled objects are like it."""

    catalogue: Annotated[
        str,
        Parameter(
            words="Catalogue with the object: a file, folder, pattern or URL.",
            metavar="CATALOG",
            positional=True,
        ),
    ]
    identifier: Annotated[str, Parameter(words="The object's identifier.", flag="--id", metavar="ID")]
    model: Annotated[
        str | None,
        Parameter(
            words="Model that gives the class: NAME, for its champion, or NAME@VERSION; default: the one that "
            "annotated the catalogue.",
            metavar="NAME[@VERSION]",
        ),
    ] = None
    store: Annotated[
        Path | None,
        Parameter(
            words="Folder of the model store; default: that of the annotated catalogue's manifest, or else models.",
            metavar="DIR",
        ),
    ] = None
    id_column: Annotated[
        str | None,
        Parameter(
            words="Column with the names of the objects; default: the one that looks like it.",
            metavar="COLUMN",
        ),
    ] = None
    specification: Annotated[
        Path | None,
        Parameter(
            words="Specification whose target and flags replace those that the model was trained with.",
            flag="--spec",
            metavar="FILE",
        ),
    ] = None
    table: Annotated[
        str | None, Parameter(words="Name or number of the table, in a file with several.", metavar="NAME")
    ] = None
    html: Annotated[
        Path | None, Parameter(words="Write a page of HTML too.", metavar="FILE", written=True)
    ] = None


@dataclass(frozen=True)
class MapRequest:
    """Map how many objects are of a class over the sky, or how contaminated or complete its selection is."""

    out: Annotated[Path, OUTPUT_FOLDER]
    class_name: Annotated[str, Parameter(words="Class to map.", flag="--class", metavar="CLASS")]
    what: Annotated[
        Literal["fraction", "contamination", "completeness"],
        Parameter(
            words="Objects of the class among all; those of other classes among the selected; or the selected ones "
            "among those of the class."
        ),
    ] = "contamination"
    labels: Annotated[
        Path | None,
        Parameter(
            words="Table of objects whose class is known: a review list that was filled in, or any catalogue.",
            metavar="FILE",
        ),
    ] = None
    label: Annotated[
        str, Parameter(words="Column of the class in that table; empty: not known.", metavar="COLUMN")
    ] = "label"
    identifier: Annotated[
        str | None,
        Parameter(
            words="Column that names an object, in both; default: the specification's.",
            flag="--id",
            metavar="COLUMN",
        ),
    ] = None
    order: Annotated[
        int, Parameter(words="Order of the HEALPix pixels, at most 8; 4: 3.7 degrees.", least=0, metavar="N")
    ] = 4
    over: Annotated[
        list[str] | None,
        Parameter(
            words="What the fraction may depend on: expressions over columns and maps; may be repeated.",
            metavar="EXPRESSION",
        ),
    ] = None
    sky_map: Annotated[
        list[str] | None,
        Parameter(
            words="HEALPix FITS file whose values expressions may name: NAME=FILE, NAME=FILE#COLUMN, followed "
            "by @galactic if the file does not state its coordinates; may be repeated.",
            metavar="NAME=FILE",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Parameter(
            words="Select objects with at least this probability; default: those whose likeliest class it is.",
            least=0,
            metavar="P",
        ),
    ] = None
    folder: Annotated[
        Path | None,
        Parameter(words="Folder for the maps; default: OUT/maps.", metavar="DIR", written=True),
    ] = None
    overwrite: Annotated[bool, Parameter(words="Replace maps of the same name.")] = False
    seed: Annotated[
        int, Parameter(words="Seed of the draws that intervals are made of.", least=0, metavar="N")
    ] = 0


@dataclass(frozen=True)
class CensusRequest:
    """Say how many objects of each class a classified catalogue has, with intervals, and what they rest on."""

    out: Annotated[Path, OUTPUT_FOLDER]
    store: Annotated[Path, STORE] = Path("models")
    assumes: Annotated[
        Literal["same", "shares", "features"] | None,
        Parameter(
            words="Assumption that the counts rest on; default: the specification's, or else a test chooses."
        ),
    ] = None
    specification: Annotated[
        "Specification | Path | None",
        Parameter(
            words="Specification whose [census], purity and completeness are asked for; default: as before.",
            flag="--spec",
            metavar="FILE",
            command_line_type=Path | None,
        ),
    ] = None
    by: Annotated[
        str | None,
        Parameter(
            words="Expression over features whose bins are counted one by one; default: the specification's.",
            metavar="EXPRESSION",
        ),
    ] = None
    bins: Annotated[int, BINS] = 4
    edges: Annotated[list[float] | None, EDGES] = None
