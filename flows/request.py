"""The parameters of every command (`train`, `classify`, ...): one request a command, one field a parameter.

A request is a frozen dataclass.  Each field has a `Parameter`, which describes it and bounds it: in its annotation or,
with its default, by `option`.  `flows.cli` turns the fields into options of the command line.
`flows.orchestration.run_page` turns them into the signature of a flow, from which Prefect draws its form.

A module of requests has no `from __future__ import annotations`, so Python evaluates its annotations when it is
imported.  The command line reads them as they are.  A type in quotes, such as "Specification | Path", stays a text
there, so that `blr --help` need not import what a specification needs.

This module is not called `requests`: Prefect puts this folder on the module path, where it would hide the package of
that name.
"""

# ruff: noqa: FBT003, RUF009 -- `option` makes a field, and its default, true or false, stands first

import inspect
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from flows.errors import UsageError

# The command line reads these annotations, and must not wait for the import of a specification's libraries.
if TYPE_CHECKING:
    from flows.specification.specification import Specification


@dataclass(frozen=True)
class Parameter:
    """The description of a parameter, its bound, and its form on the command line.

    Attributes
    ----------
    words
        One sentence on what the parameter is for; `--help`, the form and the docstring all show it.
    metavar
        Placeholder for the value in `--help`; None for Typer's own.
    least, most
        Smallest and largest value allowed; None for no bound.
    flag
        Flag on the command line, or several.  "" means the field's name with two hyphens in front; None means that the
        command line does not have the parameter, and only the form and the signature do.
    positional
        Whether the command line takes the value by its position, without a flag.
    command_line_type
        Type of the value on the command line, where a person cannot type the field's own type; None for the same type.
    parse
        Function that turns the typed value into the field's value; None where they are the same.  It raises UsageError
        for a value that it cannot read.
    written
        Whether the value is a path that is written to, which has to be on this machine.
    published
        Whether the value is the folder of a release, which may be in an object store.
    required
        Whether the command line requires the value although the field has a default.
    """

    words: str
    metavar: str | None = None
    _: KW_ONLY
    least: float | None = None
    most: float | None = None
    flag: str | None = ""
    positional: bool = False
    command_line_type: Any = None
    parse: Callable[[Any], Any] | None = None
    written: bool = False
    published: bool = False
    required: bool = False


def option(default: Any, words: str | Parameter, metavar: str | None = None, **form: Any) -> Any:
    """Return a field of a request with its default, and with the `Parameter` of these words and this form."""
    parameter = words if isinstance(words, Parameter) else Parameter(words, metavar, **form)
    return field(default=default, metadata={"parameter": parameter})


def request_fields(request: type) -> Iterator[tuple[inspect.Parameter, Parameter]]:
    """Yield the fields of a request as parameters of a function, in their order, each with its description.

    TypeError if a field has no `Parameter`: a bug of ours.
    """
    for asked in fields(request):
        annotation: Any = asked.type
        parameter = asked.metadata.get("parameter")
        if parameter is None and hasattr(annotation, "__metadata__"):
            parameter, annotation = annotation.__metadata__[0], annotation.__origin__
        if not isinstance(parameter, Parameter):
            raise TypeError(f"{request.__name__}.{asked.name}: got no Parameter, expected option(...)")
        default = inspect.Parameter.empty if asked.default is MISSING else asked.default
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        yield inspect.Parameter(asked.name, kind, default=default, annotation=annotation), parameter


# Parameters of several commands.

STORE = Parameter("Folder of the model store.", "DIR", written=True)
STORE_OF_COPIES = Parameter(
    "Folder of the model store; default: the one that the copies' manifest names, or else models.",
    "DIR",
    written=True,
)
OUTPUT_FOLDER = Parameter("Folder that `blr classify` has written.", "OUT", positional=True, published=True)
IDENTIFIER = Parameter(
    "Column with the names of the objects; default: the one that looks like it.", "COLUMN", flag="--id"
)
LIMIT = Parameter("Look at this many rows only.", "N", least=1)
TABLE = Parameter("Name or number of the table, in a file with several.", "NAME")
THREADS = Parameter("Threads for the computation; default: the cores of the machine.", "N", least=1)
ENGINE = Parameter(
    "Where the work is done: threads, local:N for N processes of this machine, tcp://HOST:PORT of a Dask "
    "scheduler, or its scheduler file; default: the specification's, or else threads.",
    "ENGINE",
)


def read_edges(text: str) -> list[float]:
    """Return the numbers in a text such as 16,18,20; UsageError where they do not ascend."""
    try:
        edges = [float(part) for part in text.split(",")]
    except ValueError:
        edges = []
    if not edges or any(a >= b for a, b in pairwise(edges)):
        raise UsageError(f"--edges: got '{text}', expected numbers in ascending order, as in 16,18,20")
    return edges


BINS = Parameter("Number of bins of the expression, each with the same number of objects.", "N", least=2)
EDGES = Parameter(
    "Edges between the bins, instead of their number.",
    "A,B,...",
    command_line_type=str | None,
    parse=read_edges,
)


def read_shares(text: str) -> str | dict[str, float]:
    """Return "em", or the share of each class in a text such as early=0.3,late=0.7; UsageError for any other text."""
    if text == "em":
        return text
    return dict(_numbers(text.split(","), inf, "--class-prior", "em, or shares as in early=0.3,late=0.7"))


def read_thresholds(texts: list[str]) -> list[tuple[str, float]]:
    """Return the class and the probability in each text such as quasar=0.9; UsageError for any other text."""
    return [*_numbers(texts, 1, "--threshold", "a class and a probability between 0 and 1, as in quasar=0.9")]


def _numbers(texts: list[str], most: float, option: str, expected: str) -> Iterator[tuple[str, float]]:
    """Yield the class and the number, above 0 and below `most`, of texts such as quasar=0.9."""
    for text in texts:
        name, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not (equals and name.strip() and 0 < value < most):
            raise UsageError(f"{option}: got '{text}', expected {expected}")
        yield name.strip(), value


TIMEOUT = Parameter("Seconds that the person has for an answer.", least=1, flag=None)
A_DAY = 86_400


MODEL = Parameter(
    "Model to classify with: NAME or NAME@VERSION; default: the champion of the specification's name.",
    "NAME[@VERSION]",
)
SETTINGS = "Specification whose target, flags and output replace those that the model was trained with."
THRESHOLD = Parameter(
    "Class and least probability of a selection that is judged too; may be given several times.",
    "CLASS=P",
    command_line_type=list[str] | None,
    parse=read_thresholds,
)


def _specification_parameter(words: str, *, positional: bool = False) -> Parameter:
    """Return the parameter of a TOML file: the option --spec, or SPEC by its position."""
    if positional:
        form = f"{words}: a TOML file; in Prefect's form, its content."
        return Parameter(form, "SPEC", positional=True, command_line_type=Path)
    return Parameter(words, "FILE", flag="--spec", command_line_type=Path | None)


VERIFY = Parameter(
    "Hash all inputs and outputs again, even files whose size and time have not changed; try quarantined files again."
)


@dataclass(frozen=True)
class TrainRequest:
    """Fit the candidates of a specification to labelled catalogues, and save the best of them."""

    specification: Annotated[
        "Specification | Path", _specification_parameter("Specification of what to train", positional=True)
    ]
    store: Path = option(Path("models"), STORE)
    overwrite: bool = option(False, "Train again even if the store already has this model.")
    limit: int | None = option(None, "A trial: read only this many rows, and keep nothing.", "N", least=1)
    threads: int | None = option(None, THREADS)
    engine: str | None = option(None, ENGINE)


@dataclass(frozen=True)
class InitRequest:
    """Write a commented specification for a labelled catalogue, which trains as it is."""

    file: Annotated[str, Parameter("A labelled catalogue, also at a URL.", "CATALOG", positional=True)]
    label: Annotated[str, Parameter("Column of the class.", "COLUMN")]
    labels: str | None = option(
        None,
        "File of the labels, where the catalogue lacks them: joined by the column of names that both have, or by "
        "position.",
        "FILE",
    )
    out: Path | None = option(
        None, "File to write the specification to, instead of printing it.", "FILE", written=True
    )
    overwrite: bool = option(False, "Replace an existing file.")
    limit: int | None = option(None, LIMIT)
    table: str | None = option(None, TABLE)
    columns: Path | None = option(
        None,
        "TOML file with more names of columns; default: blr-columns.toml in the folder of --out, or here.",
        "FILE",
    )


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
    store: Path = option(Path("models"), STORE)
    out: Path = option(
        Path("annotated"),
        "Folder for the annotated copies, or URL of one in an object store.",
        "DIR",
        published=True,
        required=True,
    )
    specification: "Specification | Path | None" = option(None, _specification_parameter(SETTINGS))
    class_prior: Literal["em"] | dict[str, float] | None = option(
        None,
        "Share of each class in these catalogues, where it is not the training's; em estimates the shares.",
        "em|A=X,B=Y",
        command_line_type=str | None,
        parse=read_shares,
    )
    output_format: Literal["same", "parquet", "fits"] | None = option(
        None,
        "Format of the copies, or the same as each input; default: the specification's.",
        flag="--format",
    )
    overwrite: bool = option(
        False,
        "Replace what another model or specification wrote, and other files of a copy's name; try files again that "
        "are quarantined.",
    )
    verify: bool = option(False, VERIFY)
    limit: int | None = option(
        None, "A trial: score only so many rows of each catalogue, and write nothing.", "N", least=1
    )
    threads: int | None = option(None, THREADS)
    engine: str | None = option(None, ENGINE)


@dataclass(frozen=True)
class ReprocessRequest:
    """Bring a release up to date: classify what is new or changed, retire what is gone, report differences."""

    specification: Annotated[
        "Specification | Path",
        _specification_parameter("Specification of target, flags and output folder", positional=True),
    ]
    store: Path = option(Path("models"), STORE)
    model: str | None = option(None, MODEL)
    out: Path | None = option(
        None, "Folder for the annotated copies; default: the specification's.", "DIR", published=True
    )
    verify: bool = option(False, VERIFY)
    threads: int | None = option(None, THREADS)
    engine: str | None = option(None, ENGINE)
    quiet_seconds: float = option(
        5.0, "Seconds without a change after which a file counts as complete.", "S", least=0, flag="--settle"
    )
    patience: float = option(30.0, "Seconds to wait for files that are being written.", "S", least=0)


@dataclass(frozen=True)
class ExplainRequest:
    """Say why an object has its class: what each feature contributes, and which labelled objects are like it."""

    catalogue: Annotated[
        str, Parameter("Catalogue with the object: file, folder, pattern or URL.", "CATALOG", positional=True)
    ]
    identifier: Annotated[str, Parameter("The object's identifier.", "ID", flag="--id")]
    model: str | None = option(
        None, "Model that gives the class; default: the one that annotated the catalogue.", "NAME[@VERSION]"
    )
    store: Path | None = option(None, STORE_OF_COPIES)
    id_column: str | None = option(None, "Column with the objects' names; default: the likely one.", "COLUMN")
    specification: Path | None = option(
        None,
        _specification_parameter(
            "Specification whose target and flags replace those that the model was trained with."
        ),
    )
    table: str | None = option(None, TABLE)
    html: Path | None = option(None, "Write a page of HTML too.", "FILE", written=True)


@dataclass(frozen=True)
class MapRequest:
    """Map how many objects are of a class over the sky, or how contaminated or complete its selection is."""

    out: Annotated[Path, OUTPUT_FOLDER]
    class_name: Annotated[str, Parameter("Class to map.", "CLASS", flag="--class")]
    what: Literal["fraction", "contamination", "completeness"] = option(
        "contamination",
        "The class among all objects, other classes among the selected, or the selected among the class.",
    )
    labels: Path | None = option(
        None, "Objects whose class is known: a review list, or any catalogue.", "FILE"
    )
    label: str = option("label", "Column of the class in that table; empty: not known.", "COLUMN")
    identifier: str | None = option(
        None, "Column that names an object, in both; default: the specification's.", "COLUMN", flag="--id"
    )
    order: int = option(4, "Order of the HEALPix pixels, at most 8; 4: 3.7 degrees.", "N", least=0)
    over: list[str] | None = option(
        None, "What the fraction may depend on, of columns and maps; may be repeated.", "EXPRESSION"
    )
    sky_map: list[str] | None = option(
        None,
        "HEALPix FITS file whose values expressions may name: NAME=FILE, NAME=FILE#COLUMN, followed "
        "by @galactic if the file does not state its coordinates; may be repeated.",
        "NAME=FILE",
    )
    threshold: float | None = option(
        None, "Least probability of the selected; default: those whose likeliest class it is.", "P", least=0
    )
    folder: Path | None = option(None, "Folder for the maps; default: OUT/maps.", "DIR", written=True)
    overwrite: bool = option(False, "Replace maps of the same name.")
    seed: int = option(0, "Seed of the draws that intervals are made of.", "N", least=0)


@dataclass(frozen=True)
class CensusRequest:
    """Say how many objects of each class a classified catalogue has, with intervals, and what they rest on."""

    out: Annotated[Path, OUTPUT_FOLDER]
    store: Path | None = option(None, STORE_OF_COPIES)
    assumes: Literal["same", "shares", "features"] | None = option(
        None, "Assumption that the counts rest on; default: the specification's, or else a test chooses."
    )
    specification: "Specification | Path | None" = option(
        None,
        _specification_parameter(
            "Specification whose [census], purity and completeness are asked for; default: as before."
        ),
    )
    by: str | None = option(
        None, "Expression whose bins are counted one by one; default: the specification's.", "EXPRESSION"
    )
    bins: int = option(4, BINS)
    edges: list[float] | None = option(None, EDGES)


@dataclass(frozen=True)
class ReviewRequest:
    """Write a list of objects for a human look: CSV, and a page with links to sky surveys."""

    out: Annotated[Path, OUTPUT_FOLDER]
    budget: int | None = option(
        None,
        "Objects to label, drawn where labels help most; a list of outliers is written too.",
        "N",
        least=1,
    )
    outliers: int = option(20, "Objects in the list of outliers that --budget writes.", "N", least=0)
    per_class: bool = option(False, "Share the budget equally between the classes that the model gives.")
    by: str | None = option(
        None, "Expression whose bins share the budget equally, such as a magnitude.", "EXPRESSION"
    )
    bins: int = option(3, BINS)
    edges: list[float] | None = option(None, EDGES)
    top: int | None = option(
        None, "Flagged objects, the least certain first; default: 100, if no budget is given.", "N", least=0
    )
    store: Path | None = option(None, STORE_OF_COPIES)
    specification: Path | None = option(
        None,
        _specification_parameter("Specification that the copies were classified with, if not the model's."),
    )
    identifier: str | None = option(None, IDENTIFIER)
    seed: int = option(0, "Seed of the random draw.", "N", least=0)

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
            raise UsageError("--budget: got --top too, expected one way to choose; leave one of them out")
        if self.budget is None and (self.per_class or self.by is not None):
            raise UsageError("--per-class, --by: got no --budget, which they divide; add --budget N")


@dataclass(frozen=True)
class AuditDrawRequest:
    """Draw objects by design, and write the list that people fill in: CSV, and a page with links."""

    out: Annotated[Path, OUTPUT_FOLDER]
    n: int = option(200, "Objects to draw.", "N", least=10)
    by: str | None = option(
        None, "Expression whose bins are judged one by one, such as a magnitude.", "EXPRESSION"
    )
    bins: int = option(3, BINS)
    edges: list[float] | None = option(None, EDGES)
    threshold: list[tuple[str, float]] | None = option(None, THRESHOLD)
    identifier: str | None = option(None, IDENTIFIER)
    seed: int = option(0, "Seed of the random draw.", "N", least=0)
    overwrite: bool = option(False, "Replace an earlier list, unless answers have been filled in there.")


@dataclass(frozen=True)
class AuditEstimateRequest:
    """Estimate counts, purity and completeness from the answers, and quote the counts in summary.json."""

    out: Annotated[Path, OUTPUT_FOLDER]
    answers: Annotated[
        list[Path],
        Parameter(
            "Lists that were filled in: the identifier and the column `label`.", "ANSWERS", positional=True
        ),
    ]
    threshold: list[tuple[str, float]] | None = option(None, THRESHOLD)
    sets: float | None = option(
        None, "Learn prediction sets from the answers: the share of a class's objects that keep it.", "SHARE"
    )


MARGIN = 0.005
"""Nats an object by which a challenger has to be better, unless somebody says otherwise."""


@dataclass(frozen=True)
class PromoteRequest:
    """Put a model in the champion's place, reject it (--reject), or undo the last promotion (--undo)."""

    model: Annotated[
        str,
        Parameter("NAME@VERSION, or NAME for the newest of its versions.", "NAME[@VERSION]", positional=True),
    ]
    store: Path = option(Path("models"), STORE)
    how: Literal["ask", "better", "now"] = option(
        "ask",
        "Ask a person on the page of this run; promote by rule, if it is better; or promote now.",
        flag=None,
    )
    margin: float = option(
        MARGIN, "Nats an object by which the rule wants the model to be better.", "NATS", least=0
    )
    why: str | None = option(None, "Reason, for the champion's log.", "TEXT")
    by: str | None = option(None, "Who decides, for the log; default: the user.", "PERSON")
    release: Path | None = option(
        None, "Folder of the last release, to compare with; default: the specification's, if there.", "DIR"
    )
    timeout: int = option(A_DAY, TIMEOUT)


NAME = Parameter("Name of the releases: a folder below --releases.", "NAME", positional=True)
VERSION = Parameter("Version of the release, such as 2.1.", "VERSION", positional=True)
RELEASES = Parameter("Folder of all releases, or URL of one in an object store.", "DIR", published=True)
BY = Parameter("Who decides; default: BLR_SIGNER, or else the user, unless that is root.", "PERSON")
WHY = Parameter("The reason, which the record keeps.", "TEXT")
RUN = Parameter("Folder that `blr classify` or `blr reprocess` has finished.", "OUT", flag="--run")
TRUTH = Parameter("Table of objects whose class is known, such as from spectra.", "FILE")
TRUTH_COLUMN = Parameter("Column of the classes in that table.", "COLUMN")


@dataclass(frozen=True)
class DraftRequest:
    """Draft a release where no reader sees it: adopt a finished run, or classify by a specification.

    The form of `publish` asks for the labels too that the draft is checked against, and how long a person has to sign.
    """

    name: Annotated[str, NAME]
    version: Annotated[str, VERSION]
    releases: Path = option(Path("releases"), RELEASES)
    run: Path | None = option(None, RUN)
    specification: Path | None = option(
        None, _specification_parameter("Specification of the run, or of the classification to make.")
    )
    model: str | None = option(None, MODEL)
    store: Path = option(Path("models"), STORE)
    companion: list[str] | None = option(
        None, "Table that goes with the release and has the same objects; may be given several times.", "FILE"
    )
    id_column: str | None = option(None, "Column with the names of the objects.", "COLUMN", flag="--id")
    truth: Path | None = option(None, replace(TRUTH, flag=None))
    truth_column: str = option("label", replace(TRUTH_COLUMN, flag=None))
    timeout: int = option(7 * A_DAY, TIMEOUT)


@dataclass(frozen=True)
class ReleaseRequest:
    """Check every row of a draft; exit status 1 where a check says stop."""

    name: Annotated[str, NAME]
    version: Annotated[str, VERSION]
    releases: Path = option(Path("releases"), RELEASES)
    truth: Path | None = option(None, TRUTH)
    truth_column: str = option("label", TRUTH_COLUMN)
    seed: int = option(0, "Seed of the random rows that are scored again.", "N")


@dataclass(frozen=True)
class PublishRequest:
    """Make a signed draft visible, for ever, and the latest."""

    name: Annotated[str, NAME]
    version: Annotated[str, VERSION]
    releases: Path = option(Path("releases"), RELEASES)
    by: str | None = option(None, BY)


@dataclass(frozen=True)
class SignRequest(PublishRequest):
    """Sign the digest of a checked draft, or refuse it (--refuse)."""

    why: str | None = option(None, WHY)
    override: list[str] | None = option(
        None, "Check that says stop and is overridden; may be given several times.", "CHECK"
    )
    refuse: bool = option(False, "Refuse to sign, with a reason in --why.")
    digest: str | None = option(None, "Digest that was looked at; another one is not signed.", "SHA256")
    key: Path | None = option(None, "Private Ed25519 key in PEM, to sign with.", "FILE")


@dataclass(frozen=True)
class RollbackRequest:
    """Make an earlier version the latest again; every version stays."""

    name: Annotated[str, NAME]
    to: str | None = option(None, "Version to go back to; default: the one before.", "VERSION")
    releases: Path = option(Path("releases"), RELEASES)
    by: str | None = option(None, BY)
    why: str | None = option(None, WHY)


@dataclass(frozen=True)
class PatchRequest:
    """Draft a point release of listed rows that a run changes; refused where other rows change."""

    name: Annotated[str, NAME]
    version: Annotated[str, VERSION]
    rows: Annotated[Path, Parameter("Table with the identifiers of the rows that may change.", "FILE")]
    run: Annotated[Path, Parameter("Folder of the run that has all rows again.", "OUT")]
    store: Path = option(Path("models"), STORE)
    releases: Path = option(Path("releases"), RELEASES)
    why: str | None = option(None, WHY)


@dataclass(frozen=True)
class ReplayRequest:
    """Score rows of an annotated file again, and say whether the model gives what is published."""

    file: Annotated[str, Parameter("An annotated file.", "FILE", positional=True)]
    model: str | None = option(
        None, "Model file, or NAME@VERSION in a store; default: the model that the file names.", "MODEL"
    )
    store: Path = option(Path("models"), STORE)
    specification: Path | None = option(
        None, _specification_parameter("Specification of the classification.")
    )
    rows: int = option(10_000, "Rows to draw.", "N", least=1)
    seed: int = option(0, "Seed of the draw.", "N")
