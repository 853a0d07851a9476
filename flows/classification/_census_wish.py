"""The questions of a specification to the census; copies do not depend on them, so the settings of copies lack them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from blr.census.results import StatedAssumption
from flows.classification._selections import of_features
from flows.errors import SpecificationError
from flows.models.model import Model
from flows.runs.census import CensusAsked
from flows.runs.manifest import SelectedColumn
from flows.specification.specification import CensusTable, Flags, Shift, Specification

__all__ = ["CensusWish", "census_table", "with_stated_bias", "without_wish"]


@dataclass(frozen=True, kw_only=True)
class CensusWish:
    """The assumption, None where a test chooses it, and the purity and completeness stated by class.

    `selected` are the columns of selections, by name.  `by` is the expression of the bins, None for none: so many
    `bins`, or those between `edges`.
    """

    assumes: StatedAssumption | None = None
    purity: Mapping[str, float] = field(default_factory=dict)
    completeness: Mapping[str, float] = field(default_factory=dict)
    selected: Mapping[str, SelectedColumn] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    by: str | None = None
    bins: int = 4
    edges: tuple[float, ...] | None = None

    @classmethod
    def of(cls, model: Model, wanted: Specification) -> CensusWish:
        """Return the questions to a census with a model; SpecificationError for a class that it does not know."""
        purity, completeness = wanted.flags.purity, wanted.flags.completeness
        for key, stated in (("purity", purity), ("completeness", completeness)):
            unknown = [name for name in stated if name not in model.classes]
            if unknown:
                raise SpecificationError(
                    f"flags.{key}: got the class '{unknown[0]}', expected one of {', '.join(model.classes)}; correct "
                    "the name"
                )
        assumes = wanted.shift.assumes or model.specification.shift.assumes
        table = census_table(model, wanted)
        wish = cls(
            assumes=assumes, purity=dict(purity), completeness=dict(completeness), classes=model.classes
        )
        return (
            wish
            if table.by is None
            else wish.binned(model, table.by, bins=table.bins, edges=table.edges, key="census.by")
        )

    @classmethod
    def of_asked(cls, model: Model, asked: CensusAsked) -> CensusWish:
        """Return the questions that were put to an earlier census with the model."""
        return cls(**vars(asked), classes=model.classes)

    @property
    def asked(self) -> CensusAsked:
        """The questions, in the form of the manifest."""
        return CensusAsked(**{f.name: getattr(self, f.name) for f in fields(CensusAsked)})

    def binned(
        self, model: Model, by: str, *, bins: int, edges: Sequence[float] | None, key: str
    ) -> CensusWish:
        """Return the wish for a census by bins; SpecificationError for an expression of anything but features."""
        of_features(model, by, key=key)
        return replace(self, by=by, bins=bins, edges=None if edges is None else tuple(edges))


def census_table(model: Model, wanted: Specification) -> CensusTable:
    """Return the bins that are wanted, by default those that the model was trained with."""
    return wanted.census if wanted.census.by else model.specification.census


def without_wish(settings: Specification) -> Specification:
    """Return the settings of copies without the questions to the census."""
    shift: Shift = settings.shift.model_copy(update={"assumes": None})
    bins = settings.census if settings.output.selected == "bins" else CensusTable()
    update = {"shift": shift, "census": bins}
    if settings.output.selected:
        return settings.model_copy(update=update)
    flags: Flags = settings.flags.model_copy(update={"purity": {}, "completeness": {}})
    return settings.model_copy(update=update | {"flags": flags})


def with_stated_bias(settings: Specification, model: Model, wanted: Specification) -> Specification:
    """Return settings of copies that know of labels said to be biased, where a column rests on labels that are not."""
    stated = wanted.shift.assumes or model.specification.shift.assumes
    if stated != "features" or (settings.output.sets is None and not settings.output.selected):
        return settings
    return settings.model_copy(update={"shift": settings.shift.model_copy(update={"assumes": "features"})})
