"""The parameters of `release draft`, `check`, `sign`, `publish`, `rollback`, `patch`, `verify` and `replay`.

This module evaluates its annotations: `flows.runs.parameters` says why.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from flows.runs.parameters import STORE, Parameter

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
    timeout: Annotated[
        int, Parameter(words="Seconds that the person has for an answer.", least=1, flag=None)
    ] = 7 * 86_400


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
