"""What the TOML file may say: the whole specification, with the tables for bases, census, output, run and shift.

The keys of a basis are the keywords of `fit` of that basis in `blr`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from blr.candidates.candidate import Candidate as FittedAs
from catalogs.catalog.new_columns import standard_columns
from catalogs.errors import NameClashError, nearest
from catalogs.expressions.expression import parse
from catalogs.profile.split import FINEST_ORDER
from flows.runs.references import NAME_PATTERN
from flows.specification.catalog import (
    ERROR,
    MARKS,
    Band,
    CatalogTable,
    Expression,
    Label,
    Marks,
    Paths,
    SpecificationTable,
    Target,
    check_states,
    made_by,
    setting,
)


def _some(value: object) -> object:
    if value == ():
        raise ValueError("got an empty list, expected at least one value; leave the key out for the default")
    return value


Power = Annotated[float, Field(ge=0, le=2)]
Width = Annotated[float, Field(gt=0)]
Some = AfterValidator(_some)


class LinearBasis(SpecificationTable):
    """The features themselves."""

    kind: Literal["linear"]


class PolynomialBasis(SpecificationTable):
    """All products of powers of the features up to a total degree."""

    kind: Literal["polynomial"]
    degree: int = setting("Highest total degree", default=2, ge=1, le=6)


class PrincipalBasis(SpecificationTable):
    """The principal components of the features, those of large variance favoured."""

    kind: Literal["principal"]
    power: Annotated[Power | tuple[Power, ...], Some] = setting(
        "Power of a component's variance that scales it, or several; 0: all alike", default=0.5
    )


class RbfBasis(SpecificationTable):
    """Gaussian bumps about centres found in the training rows."""

    kind: Literal["rbf"]
    centres: int = setting("How many bumps", default=40, ge=1, le=2000)
    width: Annotated[Width | tuple[Width, ...] | None, Some] = setting(
        "Width of a bump in a feature's spreads, or several; default: from the rows"
    )
    linear: bool = setting("The features themselves too", default=False)


class LaplacianBasis(SpecificationTable):
    """Sharp peaks about centres found in the training rows, which fall with the sum of the features' distances."""

    kind: Literal["laplacian"]
    centres: int = setting("How many peaks", default=40, ge=1, le=2000)
    width: Annotated[Width | tuple[Width, ...] | None, Some] = setting(
        "Distance, summed over the features in units of their spreads, over which a peak falls by e, or "
        "several, among which the evidence chooses; default: the median distance of rows"
    )
    linear: bool = setting("The features themselves too", default=False)


class NystroemBasis(SpecificationTable):
    """Functions about centres that vary together as a Gaussian process does: Nyström's approximation of a kernel."""

    kind: Literal["nystroem"]
    centres: int = setting("How many centres, and at most as many functions", default=100, ge=1, le=2000)
    width: Annotated[Width | tuple[Width, ...] | None, Some] = setting(
        "Width of the kernel in a feature's spreads; default: from the rows"
    )


class SigmoidBasis(SpecificationTable):
    """Steps along each feature."""

    kind: Literal["sigmoid"]
    centres: int = setting("Steps a feature", default=5, ge=1, le=200)
    width: float | None = setting("Width of a step; default: their spacing", gt=0)


class BsplineBasis(SpecificationTable):
    """Smooth curves along each feature."""

    kind: Literal["bspline"]
    knots: int = setting("Inner knots a feature", default=5, ge=1, le=200)
    degree: int = setting("Degree of the pieces", default=3, ge=1, le=5)


class FourierBasis(SpecificationTable):
    """Random cosines: a smooth function of all features together."""

    kind: Literal["fourier"]
    frequencies: int = setting("Number of cosines", default=50, ge=1, le=2000)
    lengthscale: float | None = setting("Length scale of the function; default: from the rows", gt=0)


class ForestBasis(SpecificationTable):
    """The logits of a small forest of trees: local structure that no smooth function follows."""

    kind: Literal["forest"]
    trees: int = setting("Number of trees", default=64, ge=8, le=1000)
    split: Literal["random", "best"] = setting(
        "Thresholds at random, or the best of those of a few features", default="random"
    )
    leaf: int | None = setting("Fewest rows of a leaf; default: by the number of rows, 1 to 3", ge=1)
    linear: bool = setting("The features themselves too", default=False)
    boosted: bool = setting(
        "Each tree grown on what those before leave unexplained, in five folds", default=False
    )


Basis = Annotated[
    LinearBasis
    | PolynomialBasis
    | PrincipalBasis
    | RbfBasis
    | LaplacianBasis
    | NystroemBasis
    | SigmoidBasis
    | BsplineBasis
    | FourierBasis
    | ForestBasis,
    Field(discriminator="kind"),
]


class CensusTable(SpecificationTable):
    """The bins in which the census of a classification counts objects; annotated files do not depend on them."""

    by: Expression | None = setting("Expression over features whose bins are counted one by one")
    bins: int = setting("Number of bins, each with the same number of objects", default=4, ge=2, le=50)
    edges: tuple[float, ...] | None = setting(
        "Edges between bins, instead of a number", min_length=1, max_length=49
    )

    @model_validator(mode="after")
    def _check(self) -> CensusTable:
        if self.by is None and {"edges", "bins"} & self.model_fields_set:
            raise ValueError(
                "got bins or edges without by, expected the expression whose bins they are; add by"
            )
        if self.edges is not None and any(low >= high for low, high in pairwise(self.edges)):
            raise ValueError(f"edges: got {list(self.edges)}, expected ascending numbers, as in [16, 18, 20]")
        return self


MOST_SET_CLASSES = 31
"""Most classes of prediction sets: each has a bit of a 32-bit integer, whose last bit is the sign."""


class Output(SpecificationTable):
    """What annotated catalogues look like."""

    folder: str = setting("Folder of the copies, relative to the specification", default="annotated")
    columns: Literal["standard", "full"] = setting("Which columns are added", default="standard")
    mode: Literal["annotated", "slim"] = setting(
        "Every input column and the new ones, or id, position and these", default="annotated"
    )
    format: Literal["same", "parquet", "fits"] = setting(
        "Format of the copies: each input's own, or another", default="same"
    )
    sets: float | None = setting(
        "Add the prediction set: this share of a class's objects have it", ge=0.5, lt=1
    )
    set_thresholds: dict[str, Annotated[float, Field(ge=0, lt=1)]] = setting(
        "Class = least probability in the set; default: learnt from labelled rows", default={}
    )
    selected: bool | Literal["bins"] = setting(
        "Add whether an object is selected, by flags.purity and flags.completeness", default=False
    )
    prefix: str = setting("Prefix of new columns", default="blr_", pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,15}$")

    @property
    def form(self) -> str | None:
        """The format of the copies; None for the format of each input."""
        return None if self.format == "same" else self.format


class Run(SpecificationTable):
    """Where the work is done; no result depends on it."""

    engine: str | None = setting(
        "Where the work is done: threads, local:N for N processes of this machine, tcp://HOST:PORT of a "
        "Dask scheduler, or the path of its scheduler file; default: threads",
        pattern=r"^(threads|local:[1-9]\d{0,2}|(tcp|tls)://\S+:\d+|[^:]+\.json)$",
    )


ROUNDING = 0.01
"""Largest difference from 1 of the sum of class shares, which people round."""


def _shares(value: Any) -> Any:
    """Return "em", or shares scaled to sum to one; for a union of types, pydantic would report each error twice."""
    expected = 'expected "em", or a table of the share of each class, as in { early = 0.3, late = 0.7 }'
    if value is None or value == "em":
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"got {value!r}, {expected}; change it")  # noqa: TRY004  pydantic words ValueErrors
    for name, share in value.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 1:
            raise ValueError(f"got {share!r} as the share of '{name}', expected one from 0 to 1; correct it")
    total = math.fsum(value.values())
    if abs(total - 1) > ROUNDING:
        raise ValueError(f"got shares that sum to {total:.6g}, expected 1; correct them")
    if math.isclose(total, 1, rel_tol=1e-12):
        return dict(value)  # not scaled, so that reading a stored specification changes no share
    return {name: share / total for name, share in value.items()}


ClassPrior = Annotated[Literal["em"] | dict[str, float] | None, BeforeValidator(_shares)]


class Shift(SpecificationTable):
    """A training set unlike the target: weights for the features, or shares for the classes; never both."""

    target: Paths | None = setting("Catalogue the training rows are compared with; default: target.paths")
    density_weights: bool = setting(
        "Weight each training row by how much more frequent objects like it are in the target", default=False
    )
    class_prior: ClassPrior = setting('Class = its share in the target, or "em": estimated from the target')
    class_prior_source: str | None = setting(
        "Where those shares come from, in words, for the record", max_length=200
    )
    assumes: Literal["same", "shares", "features"] | None = setting(
        "What the census assumes to be as in the labels; default: a test chooses"
    )

    @model_validator(mode="after")
    def _check(self) -> Shift:
        if self.density_weights and self.class_prior is not None:
            raise ValueError(
                "got density_weights and class_prior, expected one of them: density_weights if equal features mean "
                "equal probabilities in both catalogues, class_prior if only shares differ; remove the other"
            )
        return self


class Split(SpecificationTable):
    """Which rows are held out of every fit, by a salted hash, so that the same rows are held out for every model."""

    by: str | Annotated[tuple[str, ...], Field(min_length=1)] = setting(
        "'id', 'healpix', a column or several; rows of equal values stay together", default="id"
    )
    held_out: float = setting(
        "Share of the rows that no fit sees until the model is judged", default=0.2, ge=0, lt=0.9
    )
    refit: bool = setting("After the model was chosen and judged, fit it again to all rows", default=True)
    healpix_order: int | None = setting("Order of the pixels; default: 5, or more", ge=0, le=FINEST_ORDER)


class Candidate(SpecificationTable):
    """One of the models that are compared."""

    features: tuple[str, ...] | None = setting("Features it uses; default: all")
    basis: Basis = setting("Basis functions of the features", default=LinearBasis(kind="linear"))
    transform: Literal["none", "arcsinh"] = setting(
        "arcsinh is linear for most values and logarithmic in the tails", default="none"
    )
    likelihood: Literal["logistic", "probit"] = setting(
        "Link function for two classes; more classes use softmax", default="logistic"
    )
    prior_probability: float = setting("Relative probability before the data", default=1.0, gt=0)

    @property
    def fitted(self) -> FittedAs:
        """The candidate as `blr` fits it."""
        options = self.basis.model_dump(exclude={"kind"}, exclude_defaults=True, exclude_none=True)
        softened = self.transform == "arcsinh"
        return FittedAs(
            self.basis.kind, options, self.features, softened, self.likelihood, self.prior_probability
        )

    @classmethod
    def stated(cls, candidate: FittedAs) -> Candidate:
        """Return the table of a candidate of `blr`."""
        basis = {"kind": candidate.kind, **candidate.options}
        transform = "arcsinh" if candidate.soften else "none"
        own = {name: getattr(candidate, name) for name in ("features", "likelihood", "prior_probability")}
        return cls.model_validate({"basis": basis, "transform": transform, **own})


class Select(SpecificationTable):
    """How the model is made of the candidates."""

    by: Literal["evidence", "bic", "loo", "average", "stack"] = setting(
        "Score that ranks the candidates; or an average of them, or a stack", default="evidence"
    )
    posterior: Literal["laplace", "refined", "sampled"] = setting(
        "Posterior of the model that is kept", default="refined"
    )
    scale: Literal["integrated", "maximised"] = setting(
        "Prior's standard deviation: a mixture, or the likeliest", default="integrated"
    )
    extrapolation: Literal["averaged", "model"] = setting(
        "Beyond the training rows: nine tenths of a constant, or the model", default="averaged"
    )
    temperature: Literal["estimated", "none"] = setting(
        "Whether probabilities are raised to a power if left-out rows clearly show that this is better",
        default="estimated",
    )


Share = Annotated[float, Field(gt=0, lt=1)]


class Flags(SpecificationTable):
    """When an object deserves a second look."""

    low_confidence: float = setting(
        "Flag where the class has less than this against its runner-up", default=0.7, ge=0.5, le=1
    )
    close_call: float = setting("Flag where the top two are within this", default=0.1, ge=0, le=1)
    budget: float | None = setting(
        "Flag this share, the least certain, instead of low_confidence", gt=0, lt=1
    )
    purity: dict[str, Share] = setting(
        "Class = purity; the census finds the lowest threshold that reaches it", default={}
    )
    completeness: dict[str, Share] = setting(
        "Class = completeness; the census finds the highest threshold that reaches it", default={}
    )


class Specification(SpecificationTable):
    """A specification: everything that a model and its annotations depend on.

    Examples
    --------
    >>> specification = flows.read_specification("spec.toml")  # doctest: +SKIP
    >>> specification.features  # doctest: +SKIP
    {'b_j': 'bmag - jmag'}
    """

    name: str = Field(pattern=NAME_PATTERN, description="Name of the model in the store")
    catalog: CatalogTable
    target: Target = setting("The catalogue to classify, if it is another one", default=Target())
    label: Label
    split: Split = Split()
    photometry: dict[str, Band] = setting("Magnitude = flux and what is done to it", default={})
    features: dict[str, Expression] = Field(min_length=1, description="Feature = expression over columns")
    errors: dict[str, Expression] = setting("Feature = one-sigma error, an expression", default={})
    candidate: tuple[Candidate, ...] = setting("Models to compare", default=(Candidate(),), min_length=1)
    select: Select = Select()
    shift: Shift = Shift()
    flags: Flags = Flags()
    census: CensusTable = CensusTable()
    output: Output = Output()
    run: Run = Run()
    seed: int = setting("Seed of everything that is drawn at random", default=0, ge=0, lt=2**63)
    base_folder: str = setting("Folder of relative paths; by default that of the file", default=".")

    @model_validator(mode="after")
    def _check(self) -> Specification:
        self._check_columns()
        self._check_shift()
        self.check_sets()
        self.check_target()
        self._check_names()
        return self

    def _check_columns(self) -> None:
        """Raise ValueError where new columns would have one name, or where columns that are needed are not named."""
        classes, catalog = self.label.classes or self.label.votes, self.catalog
        if classes is not None:
            try:
                standard_columns(tuple(classes), self.output.prefix, columns=self.output.columns)
            except NameClashError as error:
                raise ValueError(f"label: {error}") from error
        no_position = None in (catalog.ra, catalog.dec)
        if self.output.mode == "slim" and catalog.id is None and no_position:
            raise ValueError(
                "output.mode: got 'slim' without catalog.id or a position, expected one of them, by which rows can be "
                "joined to their old columns; add catalog.id"
            )
        if self.split.by == "id" and catalog.id is None:
            raise ValueError(
                "split.by: got 'id' without catalog.id, expected the column that names the objects; add it or, "
                "if no column does, split by 'healpix', which needs catalog.ra and catalog.dec"
            )
        if self.split.by == "healpix" and no_position:
            raise ValueError(
                "split.by: got 'healpix' without catalog.ra and catalog.dec, expected both; add them, or "
                "split by 'id', which needs catalog.id"
            )

    def _check_shift(self) -> None:
        shares, classes = self.shift.class_prior, self.label.classes or self.label.votes
        if isinstance(shares, dict) and classes is not None and set(shares) != set(classes):
            raise ValueError(
                f"shift.class_prior: got shares of {', '.join(shares)}, expected one share for each class: "
                f"{', '.join(classes)}; correct the names"
            )
        if shares is not None and self.label.votes is not None:
            raise ValueError(
                "shift.class_prior: got shares with [label.votes], expected one label for each object, since votes "
                "change with the class shares; use density_weights"
            )
        if shares is not None and self.label.noise is not None:
            raise ValueError(
                "shift.class_prior: got shares with label.noise, expected correct labels, whose shares are the "
                "classes'; use density_weights, or remove one of the two keys"
            )
        for i, candidate in enumerate(self.candidate):
            for key, value in (("shift.class_prior", shares), ("label.noise", self.label.noise)):
                if value is not None and candidate.likelihood != "logistic":
                    raise ValueError(
                        f"{key}: got it with candidate.{i} of likelihood 'probit', expected 'logistic'; change either"
                    )

    def check_sets(self, n_classes: int | None = None) -> None:
        """Raise ValueError where sets or selections are not possible with the labels, or with so many classes."""
        output, label = self.output, self.label
        if output.selected:
            self._check_selected()
        if output.sets is None:
            if output.set_thresholds:
                raise ValueError("output.set_thresholds: got no output.sets, expected both; add sets = 0.9")
            return
        if n_classes is None and label.classes is not None:
            n_classes = len(label.classes)
        if not output.set_thresholds:
            self._check_sure_labels("output.sets: got a share", "the sets")
        if n_classes is not None and n_classes > MOST_SET_CLASSES:
            raise ValueError(
                f"output.sets: got {n_classes} classes, expected at most {MOST_SET_CLASSES}, each a bit of a 32-bit "
                "integer; remove the key, or join classes"
            )

    def _check_selected(self) -> None:
        purity, completeness = self.flags.purity, self.flags.completeness
        if not (purity or completeness):
            raise ValueError(
                "output.selected: got no purity or completeness of a class, expected one, for which thresholds are "
                "found; add purity = { CLASS = 0.95 } under [flags]"
            )
        if self.output.selected == "bins" and self.census.by is None:
            raise ValueError(
                'output.selected: got "bins" without census.by, expected the expression whose bins have their own '
                "thresholds; add it"
            )
        if both := sorted({*purity} & {*completeness}):
            raise ValueError(
                f"output.selected: got a purity and a completeness of '{both[0]}', expected one of the two; "
                "remove the other"
            )
        self._check_sure_labels("output.selected: got true", "thresholds")
        if self.shift.density_weights or self.shift.assumes == "features":
            raise ValueError(
                "output.selected: got true for labels that may be biased (shift.density_weights, or shift.assumes = "
                "'features'), expected labels whose classes look like the target's; remove the key, and audit the "
                "output"
            )

    def _check_sure_labels(self, got: str, learnt: str) -> None:
        """Raise ValueError where a label is a number of votes, or may be wrong."""
        for key, value in (("[label.votes]", self.label.votes), ("label.noise", self.label.noise)):
            if value is not None:
                raise ValueError(
                    f"{got} with {key}, expected labels that state the class of each object, from which {learnt} are "
                    "learnt; remove one of the two keys"
                )

    def check_target(self) -> None:
        """Raise ValueError where [target] names columns that are not used, or contradicts [catalog]."""
        known = self._columns_named()
        for key in ("columns", "units", "expressions", "limits", *MARKS):
            for name in getattr(self.target, key):
                if name not in known and not (key == "expressions" and made_by(name, self.photometry)):
                    raise ValueError(
                        f"target.{key}: got '{name}', expected the name, in the training catalogue, of a column that "
                        f"a feature, an error, target.where or [catalog] uses; {nearest(name, known)}"
                    )
        self._check_expressions()
        self.target_marks()

    def _check_expressions(self) -> None:
        """Raise ValueError where `target.expressions` defines what must be a column, or what another key defines."""
        target, catalog, bands = self.target, self.catalog, self.photometry
        texts = (*self.features.values(), *self.errors.values())
        vectors = {name for text in texts for name, index in parse(text).cells if index}
        for name in target.expressions:
            key, stem = f"target.expressions.{name}", name.removesuffix(ERROR)
            if name in {catalog.id, catalog.ra, catalog.dec, *vectors}:
                what = "a vector" if name in vectors else "the name or the position of the objects"
                raise ValueError(
                    f"{key}: got an expression for {what}, expected a column of the target; name it under "
                    "[target.columns]"
                )
            if name in target.columns:
                raise ValueError(f"{key}: got '{name}' under [target.columns] too; remove one of the two")
            if stem != name and stem in bands and stem not in target.expressions:
                raise ValueError(
                    f"{key}: got the error of the magnitude '{stem}' without the magnitude, expected both; add {stem} "
                    "under [target.expressions]"
                )

    def target_marks(self) -> dict[str, Marks]:
        """Return, by key, which values of columns count as missing in the target, from [target] or else [catalog].

        ValueError where they contradict each other.
        """
        ours, theirs = self.catalog, self.target
        for key, known in (("not_detected", ours.not_detected), ("masked", ours.masked)):
            for name in getattr(theirs, key):
                if name not in known and f"{name}_{key}" in self._columns_named():
                    raise ValueError(
                        f"target.{key}: got '{name}', but the model uses the column '{name}_{key}', expected it in the "
                        f"target; state catalog.{key} of '{name}' and train again, or remove it here"
                    )
        marks: dict[str, Marks] = {key: {**getattr(ours, key), **getattr(theirs, key)} for key in MARKS}
        try:
            check_states(marks)
        except ValueError as error:
            raise ValueError(
                f"target: {error}; entries of [catalog] hold here too, unless [target] replaces them: [] for none"
            ) from error
        return marks

    def _columns_named(self) -> set[str]:
        """Return the columns that a target needs, and those with values that mark a missing measurement."""
        catalog, bands = self.catalog, self.photometry
        texts = [*self.features.values(), *self.errors.values(), self.target.where]
        used = {name for text in texts if text for name in parse(text).names}.difference(bands)
        band_columns = {name for band in bands.values() for text in band.texts for name in parse(text).names}
        named = {name for name in (catalog.id, catalog.ra, catalog.dec) if name}
        return used.union(band_columns, named, catalog.sentinels, catalog.not_detected, catalog.masked)

    def _check_names(self) -> None:
        """Check that keys name what other keys define: limits their columns, errors and candidates their features."""
        ours, features = self.catalog, (self.features, "one of [features]")
        checks: list[tuple[str, Collection[str], Collection[str], str]] = [
            ("catalog.limits", ours.limits, ours.not_detected, "a column of catalog.not_detected"),
            ("target.limits", self.target.limits, ours.limits, "a column of catalog.limits"),
            ("errors", self.errors, *features),
            *((f"candidate.{i}.features", c.features or (), *features) for i, c in enumerate(self.candidate)),
        ]
        for key, names, known, of in checks:
            for name in names:
                if name not in known:
                    raise ValueError(f"{key}: got '{name}', expected {of}; {nearest(name, known)}")
            if len(set(names)) < len(names):
                raise ValueError(f"{key}: got a feature twice, expected each feature once; remove one")


_ORDERED = (("label", "classes"), ("label", "votes"), (None, "features"))
"""Tables and keys whose order matters: it is that of the classes, or of the feature matrix's columns."""


NOT_MEANT = {"base_folder", "run"}
"""Keys on which no result depends: they say where files are, and where the work is done."""


def canonical_json(specification: Specification) -> str:
    """Return a JSON text that is the same for all specifications with the same meaning.

    Defaults are left out.  So the text does not change if a user states a default, or a later version has a new key.
    The folder of the file and the engine are left out too.
    """
    tree = specification.model_dump(mode="json", exclude_defaults=True, exclude=NOT_MEANT)
    for table, key in _ORDERED:
        part = tree if table is None else tree[table]
        if isinstance(part.get(key), dict):
            part[key] = list(part[key].items())
    return json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def specification_hash(specification: Specification) -> str:
    """Return the SHA-256, in hexadecimal, of the canonical specification."""
    return hashlib.sha256(canonical_json(specification).encode()).hexdigest()
