"""The columns that an annotated catalogue gains: names, types, UCDs, meanings, and their provenance.

This is the contract with users.  Flag bits are only ever appended.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from typing import Literal

import pyarrow as pa

from catalogs.errors import CatalogError, NameClashError

OWN = "blr."
"""How the keys of our provenance begin, in whatever metadata a format has."""

PROBABILITY = "stat.probability"
CLASS_PROBABILITY = "stat.probability;src.class"
BINARY = 2
CREDIBLE = 0.95
"""Share of the posterior that the interval `low` to `high` of a probability holds, as much outside on each side."""


@dataclass(frozen=True)
class NewColumn:
    """A column that an annotation adds.  A column of texts has a `width`: its longest text in bytes, which FITS needs.

    Examples
    --------
    >>> import pyarrow as pa
    >>> catalogs.NewColumn("p_late", pa.float32(), "stat.probability", description="probability of a late type").name
    'p_late'
    """

    name: str
    datatype: pa.DataType
    ucd: str | None = None
    unit: str | None = None
    description: str | None = None
    width: int | None = None


@dataclass(frozen=True)
class Provenance:
    """What made an annotation.  FITS files have it as HISTORY cards, Parquet and VOTable files as metadata.

    Examples
    --------
    >>> catalogs.Provenance({"blr_model": "morphology@1f3a"}).entries["blr_model"]
    'morphology@1f3a'
    """

    entries: Mapping[str, str] = field(default_factory=dict)  # model id, specification hash, version, ...
    flags: Mapping[int, tuple[str, str]] = field(default_factory=dict)  # bit -> (name, meaning)

    def covering(self, columns: Sequence[NewColumn]) -> Provenance:
        """Return the provenance with the columns' names in it: by these a file's own columns are known again."""
        return replace(self, entries={**self.entries, "columns": ", ".join(c.name for c in columns)})

    def metadata(self, prefix: str = OWN) -> dict[str, str]:
        """Return keys and values for formats that store such: `blr.<entry>`, `blr.flag.<bit>`."""
        bits = sorted(self.flags.items())
        flags = {f"{prefix}flag.{bit}": f"{name}: {meaning}" for bit, (name, meaning) in bits}
        return {f"{prefix}{key}": value for key, value in self.entries.items()} | flags


def standard_columns(
    classes: Sequence[str],
    prefix: str = "blr_",
    *,
    columns: Literal["standard", "full"] = "standard",
    sets: bool = False,
    selected: Sequence[str] = (),
) -> tuple[NewColumn, ...]:
    """Return the columns that an annotation adds, in order.  With two classes there is also a `logit_mean`.

    `columns="full"` adds more columns after the standard ones.  With `sets` the column of prediction sets follows.
    The last columns say which objects are selected: one column for each class in `selected`.

    Raises
    ------
    catalogs.errors.NameClashError
        If two classes would get columns of the same name.

    Examples
    --------
    >>> [c.name for c in catalogs.standard_columns(("early", "late"))][:3]
    ['blr_class', 'blr_p_early', 'blr_p_late']
    """
    if len(classes) < BINARY:
        raise CatalogError(f"got the classes {list(classes)}; a classification needs two or more")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise CatalogError(
            f"the prefix {prefix!r} cannot begin the name of a column; expected a letter, then letters, "
            "digits and underscores, as in 'blr_'"
        )
    names = [f"{prefix}p_{safe_name(c)}" for c in classes]
    probabilities = [
        NewColumn(name, pa.float32(), CLASS_PROBABILITY, description=f"moderated probability of class {c}")
        for c, name in zip(classes, names, strict=True)
    ]
    scores = _score_columns(prefix, binary=len(classes) == BINARY)
    _check_class_names(classes, names, scores)
    class_column = NewColumn(
        f"{prefix}class",
        pa.string(),
        "src.class",
        description="class of the largest moderated probability; empty where the row has no probabilities",
        width=max(1, *(len(c.encode()) for c in classes)),
    )
    set_column = NewColumn(
        f"{prefix}set",
        pa.int32(),
        "meta.code;src.class",
        description="prediction set: one bit for each class that is not excluded; this file's header or metadata "
        "names the bits; -1 for no set",
    )
    standard = (class_column, *probabilities, *scores)
    last = (*((set_column,) if sets else ()), *(selected_column(c, prefix) for c in selected))
    if columns == "standard":
        return (*standard, *last)
    full = (*standard, *_full_columns(classes, prefix), *last)
    check_names((), full)
    return full


def safe_name(text: str) -> str:
    """Return a class name as part of a column name: letters, digits and underscores only."""
    ascii_text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9]+", "_", ascii_text) or "_"


def check_names(old: Iterable[str], columns: Sequence[NewColumn]) -> None:
    """Raise `NameClashError` where a new column has the name of an old one, or of another, in any case."""
    taken = {name.casefold(): name for name in old}
    new: set[str] = set()
    for column in columns:
        key = column.name.casefold()
        if key in taken:
            raise NameClashError(
                f"the catalogue has a column '{taken[key]}' already, so '{column.name}' cannot be added; "
                "choose another prefix for the new columns, or remove the old column"
            )
        if key in new:
            raise NameClashError(
                f"two new columns are called '{column.name}'; names must differ by more than upper and lower case"
            )
        new.add(key)


def selected_column(class_name: str, prefix: str) -> NewColumn:
    """Return the column that says whether an object is in the selection of a class."""
    return NewColumn(
        f"{prefix}selected_{safe_name(class_name)}",
        pa.bool_(),
        "meta.code;src.class",
        description=f"whether the probability of class {class_name} is at or above the threshold in this file's header "
        "or metadata",
    )


def _score_columns(prefix: str, *, binary: bool) -> tuple[NewColumn, ...]:
    contrast = "of the logit contrast between two classes: the largest of all pairs"
    spread = "of the logit" if binary else contrast
    flags = "flags as bits, whose names are in this file's header or metadata"
    rows = [
        ("p_max", pa.float32(), PROBABILITY, "the largest of the moderated probabilities"),
        ("logit_mean", pa.float32(), "stat.value", "posterior mean of the logit"),
        ("logit_std", pa.float32(), "stat.stdev", f"posterior standard deviation {spread}"),
        ("mutual_info", pa.float32(), "stat.value", "epistemic part of the entropy, in nats"),
        ("flags", pa.int32(), "meta.code.qual;src.class", flags),
        ("model", pa.int64(), "meta.version", "id of the model that made this row"),
    ]
    return tuple(
        NewColumn(prefix + name, datatype, ucd, description=meaning)
        for name, datatype, ucd, meaning in rows
        if binary or name != "logit_mean"
    )


_INTERVAL = f"end of the {100 * CREDIBLE:g} % interval of p of class"
_OF_EACH = (
    ("plugin", CLASS_PROBABILITY, "unmoderated probability of class"),
    ("low", "stat.probability;stat.min", f"lower {_INTERVAL}"),
    ("high", "stat.probability;stat.max", f"upper {_INTERVAL}"),
)


def _full_columns(classes: Sequence[str], prefix: str) -> Iterator[NewColumn]:
    """Yield what experts ask for beyond the standard columns: class by class, then of all classes together."""
    rows = [
        (f"{kind}_{safe_name(c)}", ucd, f"{meaning} {c}") for c in classes for kind, ucd, meaning in _OF_EACH
    ]
    rows.append(("entropy", "stat.value", "entropy of the moderated probabilities, in nats"))
    if len(classes) > BINARY:
        beyond = "the mean over all classes"
        for c in classes:
            meaning = f"posterior mean of the logit of class {c}, minus {beyond}"
            rows.append((f"logit_mean_{safe_name(c)}", "stat.value", meaning))
        # Names from `safe_name` never contain two underscores, so the two classes can be recognised.
        for a, b in combinations_with_replacement(classes, 2):
            of = f"covariance of the logits of {a} and {b}" if a != b else f"variance of the logit of {a}"
            name = f"logit_cov_{safe_name(a)}__{safe_name(b)}"
            rows.append((name, "stat.covariance", f"posterior {of}, relative to {beyond}"))
    for name, ucd, meaning in rows:
        yield NewColumn(prefix + name, pa.float32(), ucd, description=meaning)


def _check_class_names(classes: Sequence[str], names: Sequence[str], scores: Sequence[NewColumn]) -> None:
    """Raise an error that names the classes that collide, since the user knows the classes and not their columns."""
    makers = {c.name.casefold(): f"the column '{c.name}' ({c.description})" for c in scores}
    for c, name in zip(classes, names, strict=True):
        other = makers.setdefault(name.casefold(), f"class '{c}'")
        if other != f"class '{c}'" or classes.count(c) > 1:
            raise NameClashError(
                f"class '{c}' would clash with {other}, as its column would be '{name}'; names must differ by more "
                "than punctuation and case: rename the class under [label.classes] in the specification"
            )
