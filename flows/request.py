"""The parameters of every command that takes a request: one type a command, one field a parameter.

This module evaluates its annotations: `flows.runs.parameters` says why.  It is not called `requests`: Prefect puts this
folder on the module path, where it would hide the package of that name.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from flows.errors import UsageError
from flows.runs.parameters import (
    BINS,
    EDGES,
    ENGINE,
    IDENTIFIER,
    OUTPUT_FOLDER,
    STORE,
    THREADS,
    Parameter,
)

# The command line reads these annotations, and must not wait for the import of a specification's libraries.
if TYPE_CHECKING:
    from flows.specification.specification import Specification

__all__ = [
    "AuditDrawRequest",
    "AuditEstimateRequest",
    "CensusRequest",
    "ClassifyRequest",
    "DraftRequest",
    "ExplainRequest",
    "InitRequest",
    "InspectRequest",
    "MapRequest",
    "PatchRequest",
    "PromoteRequest",
    "ProposeRequest",
    "PublishRequest",
    "ReleaseRequest",
    "ReplayRequest",
    "ReprocessRequest",
    "ReviewRequest",
    "RollbackRequest",
    "SignRequest",
    "TrainRequest",
    "VerifyRequest",
    "read_shares",
    "read_threshold",
]

# Parameters of several commands; those of most are in `flows.runs.parameters`.

LIMIT = Parameter(words="Look at this many rows only.", least=1, metavar="N")
TABLE = Parameter(words="Name or number of the table, in a file with several.", metavar="NAME")
TIMEOUT = Parameter(words="Seconds that the person has for an answer.", least=1, flag=None)
A_DAY = 86_400
VERIFY = Parameter(
    words="Hash all inputs and outputs again, even files whose size and time have not changed."
)


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


@dataclass(frozen=True)
class InspectRequest:
    """Say what a file holds: a catalogue's columns and what looks odd in them, or a model."""

    file: Annotated[
        str, Parameter(words="A catalogue, also at a URL, or a model file.", metavar="FILE", positional=True)
    ]
    label: Annotated[
        str | None,
        Parameter(words="Column of the class: look for columns that give it away.", metavar="COLUMN"),
    ] = None
    limit: Annotated[int | None, LIMIT] = None
    table: Annotated[str | None, TABLE] = None


@dataclass(frozen=True)
class InitRequest:
    """Write a commented specification for a labelled catalogue, which trains as it is."""

    file: Annotated[
        str, Parameter(words="A labelled catalogue, also at a URL.", metavar="CATALOG", positional=True)
    ]
    label: Annotated[str, Parameter(words="Column of the class.", metavar="COLUMN")]
    out: Annotated[
        Path | None,
        Parameter(
            words="File to write the specification to, instead of printing it.", metavar="FILE", written=True
        ),
    ] = None
    overwrite: Annotated[bool, Parameter(words="Replace an existing file.")] = False
    limit: Annotated[int | None, LIMIT] = None
    table: Annotated[str | None, TABLE] = None
    columns: Annotated[
        Path | None,
        Parameter(
            words="TOML file with more names of columns (docs/column-names.md); default: blr-columns.toml in "
            "the folder of --out, or in this folder.",
            metavar="FILE",
        ),
    ] = None


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
    table: Annotated[str | None, TABLE] = None
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


MARGIN = 0.005
"""Nats an object by which a challenger has to be better, unless somebody says otherwise."""


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
    timeout: Annotated[int, TIMEOUT] = A_DAY


NAME = Parameter(words="Name of the releases: a folder below --releases.", metavar="NAME", positional=True)
VERSION = Parameter(words="Version of the release, such as 2.1.", metavar="VERSION", positional=True)
RELEASES = Parameter(
    words="Folder of all releases, or URL of one in an object store.", metavar="DIR", published=True
)
BY = Parameter(
    words="Who decides; default: BLR_SIGNER, or else the user of the command line, unless that is root.",
    metavar="PERSON",
)
WHY = Parameter(words="The reason, which the record keeps.", metavar="TEXT")
RUN = Parameter(
    words="Folder that `blr classify` or `blr reprocess` has finished.", flag="--run", metavar="OUT"
)
TRUTH = Parameter(words="Table of objects whose class is known, such as from spectra.", metavar="FILE")
TRUTH_COLUMN = Parameter(words="Column of the classes in that table.", metavar="COLUMN")


@dataclass(frozen=True)
class _Version:
    """Which version of which name, and where releases are."""

    name: Annotated[str, NAME]
    version: Annotated[str, VERSION]
    releases: Annotated[Path, RELEASES] = Path("releases")


@dataclass(frozen=True)
class DraftRequest(_Version):
    """Draft a release where no reader sees it: adopt a finished run, or classify by a specification."""

    run: Annotated[Path | None, RUN] = None
    specification: Annotated[
        Path | None,
        Parameter(
            words="Specification that the run used, or by which the catalogues are to be classified.",
            flag="--spec",
            metavar="FILE",
        ),
    ] = None
    model: Annotated[
        str | None,
        Parameter(
            words="Model to classify with; default: the champion of the specification's name.",
            metavar="NAME[@VERSION]",
        ),
    ] = None
    store: Annotated[Path, STORE] = Path("models")
    companion: Annotated[
        list[str] | None,
        Parameter(
            words="Table that goes with the release and has the same objects; may be given several times.",
            metavar="FILE",
        ),
    ] = None
    id_column: Annotated[
        str | None, Parameter(words="Column with the names of the objects.", flag="--id", metavar="COLUMN")
    ] = None


@dataclass(frozen=True)
class ProposeRequest(DraftRequest):
    """What is to become a release, the labels that it is checked against, and how long a person has to sign."""

    truth: Annotated[Path | None, TRUTH] = None
    truth_column: Annotated[str, TRUTH_COLUMN] = "label"
    timeout: Annotated[int, TIMEOUT] = 7 * A_DAY


@dataclass(frozen=True)
class ReleaseRequest(_Version):
    """Check every row of a draft; exit status 1 where a check says stop."""

    truth: Annotated[Path | None, TRUTH] = None
    truth_column: Annotated[str, TRUTH_COLUMN] = "label"
    seed: Annotated[int, Parameter(words="Seed of the random rows that are scored again.", metavar="N")] = 0


@dataclass(frozen=True)
class SignRequest(_Version):
    """Sign the digest of a checked draft, or refuse it (--refuse)."""

    by: Annotated[str | None, BY] = None
    why: Annotated[str | None, WHY] = None
    override: Annotated[
        list[str] | None,
        Parameter(
            words="Check that says stop and is overridden, by its name; may be given several times.",
            metavar="CHECK",
        ),
    ] = None
    refuse: Annotated[bool, Parameter(words="Refuse to sign, with a reason in --why.")] = False
    digest: Annotated[
        str | None, Parameter(words="Digest that was looked at; another one is not signed.", metavar="SHA256")
    ] = None
    key: Annotated[
        Path | None, Parameter(words="Private Ed25519 key in PEM, to sign with.", metavar="FILE")
    ] = None


@dataclass(frozen=True)
class PublishRequest(_Version):
    """Make a signed draft visible, for ever, and the latest."""

    by: Annotated[str | None, BY] = None


@dataclass(frozen=True)
class RollbackRequest:
    """Make an earlier version the latest again; every version stays."""

    name: Annotated[str, NAME]
    to: Annotated[
        str | None, Parameter(words="Version to go back to; default: the one before.", metavar="VERSION")
    ] = None
    releases: Annotated[Path, RELEASES] = Path("releases")
    by: Annotated[str | None, BY] = None
    why: Annotated[str | None, WHY] = None


@dataclass(frozen=True)
class PatchRequest:
    """Draft a point release of listed rows that a run changes; refused where other rows change."""

    name: Annotated[str, NAME]
    version: Annotated[str, VERSION]
    rows: Annotated[
        Path, Parameter(words="Table with the identifiers of the rows that may change.", metavar="FILE")
    ]
    run: Annotated[Path, Parameter(words="Folder of the run that has all rows again.", metavar="OUT")]
    store: Annotated[Path, STORE] = Path("models")
    releases: Annotated[Path, RELEASES] = Path("releases")
    why: Annotated[str | None, WHY] = None


@dataclass(frozen=True)
class VerifyRequest:
    """Verify the folder of a release by itself: every byte, and who signed it."""

    folder: Annotated[
        Path,
        Parameter(words="Folder of one release, or of all of a name.", metavar="FOLDER", positional=True),
    ]
    key: Annotated[
        Path | None, Parameter(words="Public Ed25519 key in PEM that must have signed.", metavar="FILE")
    ] = None


@dataclass(frozen=True)
class ReplayRequest:
    """Score rows of an annotated file again, and say whether the model gives what is published."""

    file: Annotated[str, Parameter(words="An annotated file.", metavar="FILE", positional=True)]
    model: Annotated[
        str | None,
        Parameter(
            words="Model file, or NAME@VERSION in a store; default: the model that the file names.",
            metavar="MODEL",
        ),
    ] = None
    store: Annotated[Path, STORE] = Path("models")
    specification: Annotated[
        Path | None, Parameter(words="Specification of the classification.", flag="--spec", metavar="FILE")
    ] = None
    rows: Annotated[int, Parameter(words="Rows to draw.", least=1, metavar="N")] = 10_000
    seed: Annotated[int, Parameter(words="Seed of the draw.", metavar="N")] = 0
