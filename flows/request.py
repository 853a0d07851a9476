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
    STORE_OF_COPIES,
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
    "read_thresholds",
]

# Parameters of several commands; those of most are in `flows.runs.parameters`.

LIMIT = Parameter("Look at this many rows only.", "N", least=1)
TABLE = Parameter("Name or number of the table, in a file with several.", "NAME")
TIMEOUT = Parameter("Seconds that the person has for an answer.", least=1, flag=None)
A_DAY = 86_400


def specification_file(words: str) -> Parameter:
    """Return the option --spec, which no command requires."""
    return Parameter(words, "FILE", flag="--spec", command_line_type=Path | None)


VERIFY = Parameter("Hash all inputs and outputs again, even files whose size and time have not changed.")


@dataclass(frozen=True)
class TrainRequest:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""

    specification: Annotated[
        "Specification | Path",
        Parameter(
            "Specification of what to train: a TOML file; in Prefect's form, its content.",
            "SPEC",
            positional=True,
            command_line_type=Path,
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    overwrite: Annotated[bool, Parameter("Train again even if the store already has this model.")] = False
    limit: Annotated[
        int | None, Parameter("A trial: read only this many rows, and keep nothing.", "N", least=1)
    ] = None
    threads: Annotated[int | None, THREADS] = None
    engine: Annotated[str | None, ENGINE] = None


@dataclass(frozen=True)
class InspectRequest:
    """Say what a file holds: a catalogue's columns and what looks odd in them, or a model."""

    file: Annotated[str, Parameter("A catalogue, also at a URL, or a model file.", "FILE", positional=True)]
    label: Annotated[
        str | None, Parameter("Column of the class: look for columns that give it away.", "COLUMN")
    ] = None
    limit: Annotated[int | None, LIMIT] = None
    table: Annotated[str | None, TABLE] = None


@dataclass(frozen=True)
class InitRequest:
    """Write a commented specification for a labelled catalogue, which trains as it is."""

    file: Annotated[str, Parameter("A labelled catalogue, also at a URL.", "CATALOG", positional=True)]
    label: Annotated[str, Parameter("Column of the class.", "COLUMN")]
    out: Annotated[
        Path | None,
        Parameter("File to write the specification to, instead of printing it.", "FILE", written=True),
    ] = None
    overwrite: Annotated[bool, Parameter("Replace an existing file.")] = False
    limit: Annotated[int | None, LIMIT] = None
    table: Annotated[str | None, TABLE] = None
    columns: Annotated[
        Path | None,
        Parameter(
            "TOML file with more names of columns (docs/column-names.md); default: blr-columns.toml in "
            "the folder of --out, or in this folder.",
            "FILE",
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
        Parameter("Catalogues to classify: files, folders, patterns or URLs.", "CATALOG", positional=True),
    ]
    model: Annotated[
        str, Parameter("Model to classify with: NAME, for its champion, or NAME@VERSION.", "NAME[@VERSION]")
    ]
    store: Annotated[Path, STORE] = Path("models")
    out: Annotated[
        Path,
        Parameter(
            "Folder for the annotated copies, or URL of one in an object store.",
            "DIR",
            published=True,
            required=True,
        ),
    ] = Path("annotated")
    specification: Annotated[
        "Specification | Path | None",
        specification_file(
            "Specification whose target, flags and output replace those that the model was trained with."
        ),
    ] = None
    class_prior: Annotated[
        Literal["em"] | dict[str, float] | None,
        Parameter(
            "Share of each class in these catalogues, where it is not the training's; em estimates the shares.",
            "em|A=X,B=Y",
            command_line_type=str | None,
            parse=read_shares,
        ),
    ] = None
    output_format: Annotated[
        Literal["same", "parquet", "fits"] | None,
        Parameter(
            "Format of the copies: same (each input's own), or another; default: the specification's.",
            flag="--format",
        ),
    ] = None
    overwrite: Annotated[
        bool,
        Parameter(
            "Replace what another model or specification wrote, and any other file that has a copy's name."
        ),
    ] = False
    verify: Annotated[bool, VERIFY] = False
    limit: Annotated[
        int | None,
        Parameter("A trial: score only this many rows of each catalogue, and write nothing.", "N", least=1),
    ] = None
    threads: Annotated[int | None, THREADS] = None
    engine: Annotated[str | None, ENGINE] = None


@dataclass(frozen=True)
class ReprocessRequest:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report differences."""

    specification: Annotated[
        "Specification | Path",
        Parameter(
            "Specification of target, flags and output folder: a TOML file; in Prefect's form, its content.",
            "SPEC",
            positional=True,
            command_line_type=Path,
        ),
    ]
    store: Annotated[Path, STORE] = Path("models")
    model: Annotated[
        str | None,
        Parameter(
            "Model to classify with: NAME or NAME@VERSION; default: the champion of the specification's name.",
            "NAME[@VERSION]",
        ),
    ] = None
    out: Annotated[
        Path | None,
        Parameter("Folder for the annotated copies; default: the specification's.", "DIR", published=True),
    ] = None
    verify: Annotated[bool, VERIFY] = False
    threads: Annotated[int | None, THREADS] = None
    engine: Annotated[str | None, ENGINE] = None
    quiet_seconds: Annotated[
        float,
        Parameter(
            "Seconds without a change after which a file no longer counts as being written.",
            "S",
            least=0,
            flag="--settle",
        ),
    ] = 5.0
    patience: Annotated[
        float,
        Parameter(
            "Seconds to wait for files that are being written, before the next run gets them.", "S", least=0
        ),
    ] = 30.0


@dataclass(frozen=True)
class ExplainRequest:
    """Say why an object has its class: what each feature contributes, and which labelled objects are like it."""

    catalogue: Annotated[
        str,
        Parameter("Catalogue with the object: a file, folder, pattern or URL.", "CATALOG", positional=True),
    ]
    identifier: Annotated[str, Parameter("The object's identifier.", "ID", flag="--id")]
    model: Annotated[
        str | None,
        Parameter(
            "Model that gives the class: NAME, for its champion, or NAME@VERSION; default: the one that "
            "annotated the catalogue.",
            "NAME[@VERSION]",
        ),
    ] = None
    store: Annotated[Path | None, STORE_OF_COPIES] = None
    id_column: Annotated[
        str | None,
        Parameter("Column with the names of the objects; default: the one that looks like it.", "COLUMN"),
    ] = None
    specification: Annotated[
        Path | None,
        specification_file(
            "Specification whose target and flags replace those that the model was trained with."
        ),
    ] = None
    table: Annotated[str | None, TABLE] = None
    html: Annotated[Path | None, Parameter("Write a page of HTML too.", "FILE", written=True)] = None


@dataclass(frozen=True)
class MapRequest:
    """Map how many objects are of a class over the sky, or how contaminated or complete its selection is."""

    out: Annotated[Path, OUTPUT_FOLDER]
    class_name: Annotated[str, Parameter("Class to map.", "CLASS", flag="--class")]
    what: Annotated[
        Literal["fraction", "contamination", "completeness"],
        Parameter(
            "Objects of the class among all; those of other classes among the selected; or the selected ones "
            "among those of the class."
        ),
    ] = "contamination"
    labels: Annotated[
        Path | None,
        Parameter(
            "Table of objects whose class is known: a review list that was filled in, or any catalogue.",
            "FILE",
        ),
    ] = None
    label: Annotated[str, Parameter("Column of the class in that table; empty: not known.", "COLUMN")] = (
        "label"
    )
    identifier: Annotated[
        str | None,
        Parameter(
            "Column that names an object, in both; default: the specification's.", "COLUMN", flag="--id"
        ),
    ] = None
    order: Annotated[
        int, Parameter("Order of the HEALPix pixels, at most 8; 4: 3.7 degrees.", "N", least=0)
    ] = 4
    over: Annotated[
        list[str] | None,
        Parameter(
            "What the fraction may depend on: expressions over columns and maps; may be repeated.",
            "EXPRESSION",
        ),
    ] = None
    sky_map: Annotated[
        list[str] | None,
        Parameter(
            "HEALPix FITS file whose values expressions may name: NAME=FILE, NAME=FILE#COLUMN, followed "
            "by @galactic if the file does not state its coordinates; may be repeated.",
            "NAME=FILE",
        ),
    ] = None
    threshold: Annotated[
        float | None,
        Parameter(
            "Select objects with at least this probability; default: those whose likeliest class it is.",
            "P",
            least=0,
        ),
    ] = None
    folder: Annotated[
        Path | None, Parameter("Folder for the maps; default: OUT/maps.", "DIR", written=True)
    ] = None
    overwrite: Annotated[bool, Parameter("Replace maps of the same name.")] = False
    seed: Annotated[int, Parameter("Seed of the draws that intervals are made of.", "N", least=0)] = 0


@dataclass(frozen=True)
class CensusRequest:
    """Say how many objects of each class a classified catalogue has, with intervals, and what they rest on."""

    out: Annotated[Path, OUTPUT_FOLDER]
    store: Annotated[Path | None, STORE_OF_COPIES] = None
    assumes: Annotated[
        Literal["same", "shares", "features"] | None,
        Parameter(
            "Assumption that the counts rest on; default: the specification's, or else a test chooses."
        ),
    ] = None
    specification: Annotated[
        "Specification | Path | None",
        specification_file(
            "Specification whose [census], purity and completeness are asked for; default: as before."
        ),
    ] = None
    by: Annotated[
        str | None,
        Parameter(
            "Expression over features whose bins are counted one by one; default: the specification's.",
            "EXPRESSION",
        ),
    ] = None
    bins: Annotated[int, BINS] = 4
    edges: Annotated[list[float] | None, EDGES] = None


def read_thresholds(texts: list[str]) -> list[tuple[str, float]]:
    """Return the class and the probability in each text such as quasar=0.9; UsageError for any other text."""
    thresholds = []
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not (equals and name and 0 < value < 1):
            raise UsageError(
                f"--threshold: got '{text}', expected a class and a probability between 0 and 1, as in quasar=0.9"
            )
        thresholds.append((name.strip(), value))
    return thresholds


@dataclass(frozen=True)
class ReviewRequest:
    """Write a list of objects for a human look: CSV, and a page with links to sky surveys."""

    out: Annotated[Path, OUTPUT_FOLDER]
    budget: Annotated[
        int | None,
        Parameter(
            "Number of objects to label, drawn where labels help most and spread over the features; a "
            "list of outliers is written too.",
            "N",
            least=1,
        ),
    ] = None
    outliers: Annotated[
        int, Parameter("Number of objects in the list of outliers that --budget writes.", "N", least=0)
    ] = 20
    per_class: Annotated[
        bool, Parameter("Share the budget equally between the classes that the model gives.")
    ] = False
    by: Annotated[
        str | None,
        Parameter(
            "Expression between whose bins the budget is shared equally, such as a magnitude.", "EXPRESSION"
        ),
    ] = None
    bins: Annotated[int, BINS] = 3
    edges: Annotated[list[float] | None, EDGES] = None
    top: Annotated[
        int | None,
        Parameter(
            "Flagged objects, the least certain first; default: 100 where nothing else is asked for.",
            "N",
            least=0,
        ),
    ] = None
    store: Annotated[Path | None, STORE_OF_COPIES] = None
    specification: Annotated[
        Path | None,
        specification_file(
            "Specification that the copies were classified with, where it was not the model's own."
        ),
    ] = None
    identifier: Annotated[str | None, IDENTIFIER] = None
    seed: Annotated[int, Parameter("Seed of the random draw.", "N", least=0)] = 0

    @property
    def n_top(self) -> int:
        """How many flagged objects are wanted."""
        return (100 if self.budget is None else 0) if self.top is None else self.top

    @property
    def n_objects(self) -> int:
        """How many objects the list may have."""
        return self.n_top if self.budget is None else self.budget

    def check(self) -> None:
        """Raise `UsageError` where options exclude each other."""
        if self.budget is not None and self.n_top:
            raise UsageError(
                "--budget: got --top too, expected one way to choose; leave it out, or run twice and keep a copy of "
                "the first list"
            )
        if self.budget is None and (self.per_class or self.by is not None):
            raise UsageError("--per-class, --by: got no --budget, which they divide; add --budget N")


@dataclass(frozen=True)
class AuditDrawRequest:
    """Draw objects by design, and write the list that people fill in: CSV, and a page with links."""

    out: Annotated[Path, OUTPUT_FOLDER]
    n: Annotated[int, Parameter("Objects to draw.", "N", least=10)] = 200
    by: Annotated[
        str | None,
        Parameter("Expression whose bins are judged one by one, such as a magnitude.", "EXPRESSION"),
    ] = None
    bins: Annotated[int, BINS] = 3
    edges: Annotated[list[float] | None, EDGES] = None
    threshold: Annotated[
        list[tuple[str, float]] | None,
        Parameter(
            "Class and least probability of a selection that is judged too; may be given several times.",
            "CLASS=P",
            command_line_type=list[str] | None,
            parse=read_thresholds,
        ),
    ] = None
    labels: Annotated[
        Path | None,
        Parameter(
            "Table of objects that have a label already; if they are drawn, nobody needs to look at them again.",
            "FILE",
        ),
    ] = None
    identifier: Annotated[str | None, IDENTIFIER] = None
    seed: Annotated[int, Parameter("Seed of the random draw.", "N", least=0)] = 0
    overwrite: Annotated[
        bool, Parameter("Replace an earlier list, unless answers have been filled in there.")
    ] = False


@dataclass(frozen=True)
class AuditEstimateRequest:
    """Estimate counts, purity and completeness from the answers, and quote the counts in summary.json."""

    out: Annotated[Path, OUTPUT_FOLDER]
    answers: Annotated[
        list[Path],
        Parameter(
            "Tables with the column of the identifier and `label`: the list, filled in.",
            "ANSWERS",
            positional=True,
        ),
    ]
    threshold: Annotated[
        list[tuple[str, float]] | None,
        Parameter(
            "Class and least probability of a selection that is judged too, besides those of the draw.",
            "CLASS=P",
            command_line_type=list[str] | None,
            parse=read_thresholds,
        ),
    ] = None
    sets: Annotated[
        float | None,
        Parameter(
            "Learn prediction sets from the answers: the share of a class's objects that are to keep it.",
            "SHARE",
        ),
    ] = None


MARGIN = 0.005
"""Nats an object by which a challenger has to be better, unless somebody says otherwise."""


@dataclass(frozen=True)
class PromoteRequest:
    """Put a model in the champion's place, reject it (--reject), or undo the last promotion (--undo)."""

    model: Annotated[
        str,
        Parameter("NAME@VERSION, or NAME for the newest of its versions.", "NAME[@VERSION]", positional=True),
    ]
    store: Annotated[Path, STORE] = Path("models")
    how: Annotated[
        Literal["ask", "better", "now"],
        Parameter(
            "Ask a person on the page of this run; promote by rule, if the model is better; or promote now.",
            flag=None,
        ),
    ] = "ask"
    margin: Annotated[
        float,
        Parameter(
            "Nats an object by which the log loss on objects that neither has seen has to be better, by rule.",
            "NATS",
            least=0,
        ),
    ] = MARGIN
    why: Annotated[str | None, Parameter("Reason, for the champion's log.", "TEXT")] = None
    by: Annotated[
        str | None,
        Parameter(
            "Name of the person who decides, for the log; default: the user of the command line.", "PERSON"
        ),
    ] = None
    release: Annotated[
        Path | None,
        Parameter(
            "Folder of the last release, for what would change in it; default: the specification's, if it is "
            "there.",
            "DIR",
        ),
    ] = None
    timeout: Annotated[int, TIMEOUT] = A_DAY


NAME = Parameter("Name of the releases: a folder below --releases.", "NAME", positional=True)
VERSION = Parameter("Version of the release, such as 2.1.", "VERSION", positional=True)
RELEASES = Parameter("Folder of all releases, or URL of one in an object store.", "DIR", published=True)
BY = Parameter(
    "Who decides; default: BLR_SIGNER, or else the user of the command line, unless that is root.", "PERSON"
)
WHY = Parameter("The reason, which the record keeps.", "TEXT")
RUN = Parameter("Folder that `blr classify` or `blr reprocess` has finished.", "OUT", flag="--run")
TRUTH = Parameter("Table of objects whose class is known, such as from spectra.", "FILE")
TRUTH_COLUMN = Parameter("Column of the classes in that table.", "COLUMN")


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
        specification_file(
            "Specification that the run used, or by which the catalogues are to be classified."
        ),
    ] = None
    model: Annotated[
        str | None,
        Parameter(
            "Model to classify with; default: the champion of the specification's name.", "NAME[@VERSION]"
        ),
    ] = None
    store: Annotated[Path, STORE] = Path("models")
    companion: Annotated[
        list[str] | None,
        Parameter(
            "Table that goes with the release and has the same objects; may be given several times.", "FILE"
        ),
    ] = None
    id_column: Annotated[
        str | None, Parameter("Column with the names of the objects.", "COLUMN", flag="--id")
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
    seed: Annotated[int, Parameter("Seed of the random rows that are scored again.", "N")] = 0


@dataclass(frozen=True)
class SignRequest(_Version):
    """Sign the digest of a checked draft, or refuse it (--refuse)."""

    by: Annotated[str | None, BY] = None
    why: Annotated[str | None, WHY] = None
    override: Annotated[
        list[str] | None,
        Parameter(
            "Check that says stop and is overridden, by its name; may be given several times.", "CHECK"
        ),
    ] = None
    refuse: Annotated[bool, Parameter("Refuse to sign, with a reason in --why.")] = False
    digest: Annotated[
        str | None, Parameter("Digest that was looked at; another one is not signed.", "SHA256")
    ] = None
    key: Annotated[Path | None, Parameter("Private Ed25519 key in PEM, to sign with.", "FILE")] = None


@dataclass(frozen=True)
class PublishRequest(_Version):
    """Make a signed draft visible, for ever, and the latest."""

    by: Annotated[str | None, BY] = None


@dataclass(frozen=True)
class RollbackRequest:
    """Make an earlier version the latest again; every version stays."""

    name: Annotated[str, NAME]
    to: Annotated[str | None, Parameter("Version to go back to; default: the one before.", "VERSION")] = None
    releases: Annotated[Path, RELEASES] = Path("releases")
    by: Annotated[str | None, BY] = None
    why: Annotated[str | None, WHY] = None


@dataclass(frozen=True)
class PatchRequest:
    """Draft a point release of listed rows that a run changes; refused where other rows change."""

    name: Annotated[str, NAME]
    version: Annotated[str, VERSION]
    rows: Annotated[Path, Parameter("Table with the identifiers of the rows that may change.", "FILE")]
    run: Annotated[Path, Parameter("Folder of the run that has all rows again.", "OUT")]
    store: Annotated[Path, STORE] = Path("models")
    releases: Annotated[Path, RELEASES] = Path("releases")
    why: Annotated[str | None, WHY] = None


@dataclass(frozen=True)
class VerifyRequest:
    """Verify the folder of a release by itself: every byte, and who signed it."""

    folder: Annotated[
        Path, Parameter("Folder of one release, or of all of a name.", "FOLDER", positional=True)
    ]
    key: Annotated[Path | None, Parameter("Public Ed25519 key in PEM that must have signed.", "FILE")] = None


@dataclass(frozen=True)
class ReplayRequest:
    """Score rows of an annotated file again, and say whether the model gives what is published."""

    file: Annotated[str, Parameter("An annotated file.", "FILE", positional=True)]
    model: Annotated[
        str | None,
        Parameter("Model file, or NAME@VERSION in a store; default: the model that the file names.", "MODEL"),
    ] = None
    store: Annotated[Path, STORE] = Path("models")
    specification: Annotated[Path | None, specification_file("Specification of the classification.")] = None
    rows: Annotated[int, Parameter("Rows to draw.", "N", least=1)] = 10_000
    seed: Annotated[int, Parameter("Seed of the draw.", "N")] = 0
