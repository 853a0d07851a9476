"""The bases that a candidate may have: one table a kind, its fields the keywords of that kind's `fit` in `blr`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from catalogs.urls import has_secret, is_remote, shown

__all__ = [
    "BASIS_KINDS",
    "Basis",
    "BsplineBasis",
    "FourierBasis",
    "LinearBasis",
    "Paths",
    "PolynomialBasis",
    "RbfBasis",
    "SigmoidBasis",
    "SourceText",
    "SpecificationTable",
    "basis_options",
    "basis_words",
    "listed",
]


class SpecificationTable(BaseModel):
    """A table of the specification: no unknown keys, no changes once read, no infinities."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True, allow_inf_nan=False)


def listed(value: Any) -> Any:
    """Return a lone value as a tuple of one: a list of one need not be written as such."""
    return (value,) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else value


def without_secret(path: str) -> str:
    """Return a path or URL; ValueError where a URL may hold a secret: specifications are kept where others read."""
    if is_remote(path) and has_secret(path):
        raise ValueError(
            f"got '{shown(path)}' with a user, a password or a query, expected a URL without: a specification is kept "
            "in models and on Prefect's pages; put passwords into ~/.netrc or the driver's settings, or fetch the file"
        )
    return path


SourceText = Annotated[str, AfterValidator(without_secret)]
Paths = Annotated[tuple[SourceText, ...], BeforeValidator(listed), Field(min_length=1)]


class LinearBasis(SpecificationTable):
    """The features themselves."""

    kind: Literal["linear"]


class PolynomialBasis(SpecificationTable):
    """All products of powers of the features up to a total degree."""

    kind: Literal["polynomial"]
    degree: int = Field(default=2, ge=1, le=6, description="Highest total degree")


class RbfBasis(SpecificationTable):
    """Gaussian bumps about centres found in the training rows."""

    kind: Literal["rbf"]
    centres: int = Field(default=40, ge=1, le=2000, description="How many bumps")
    width: float | None = Field(
        default=None,
        gt=0,
        description="Width of a bump in units of a feature's spread; default: from the centres",
    )
    linear: bool = Field(default=False, description="The features themselves too")


class SigmoidBasis(SpecificationTable):
    """Steps along each feature."""

    kind: Literal["sigmoid"]
    centres: int = Field(default=5, ge=1, le=200, description="Steps a feature")
    width: float | None = Field(default=None, gt=0, description="Width of a step; default: their spacing")


class BsplineBasis(SpecificationTable):
    """Smooth curves along each feature."""

    kind: Literal["bspline"]
    knots: int = Field(default=5, ge=1, le=200, description="Inner knots a feature")
    degree: int = Field(default=3, ge=1, le=5, description="Degree of the pieces")
    extrapolation: Literal["linear", "constant"] = Field(
        default="linear", description="How a curve goes on beyond the training rows"
    )


class FourierBasis(SpecificationTable):
    """Random cosines: a smooth function of all features together."""

    kind: Literal["fourier"]
    frequencies: int = Field(default=50, ge=1, le=2000, description="How many")
    lengthscale: float | None = Field(
        default=None, gt=0, description="Of the function; default: from the rows"
    )


Basis = Annotated[
    LinearBasis | PolynomialBasis | RbfBasis | SigmoidBasis | BsplineBasis | FourierBasis,
    Field(discriminator="kind"),
]

BASIS_KINDS = ("linear", "polynomial", "rbf", "sigmoid", "bspline", "fourier")


def basis_options(basis: Basis) -> dict[str, Any]:
    """Return the keywords for `blr.basis.fit_basis`, what is not given left to it."""
    return basis.model_dump(exclude={"kind"}, exclude_none=True)


def basis_words(basis: Basis) -> str:
    """Return a basis in words: 'rbf, centres 40, linear'; its size always, the rest where it is not the default."""
    given = basis.model_dump(exclude={"kind"}, exclude_defaults=True)
    shown = {name: value for name, value in basis_options(basis).items() if name in SIZES or name in given}
    words = (name if value is True else f"{name} {value}" for name, value in shown.items())
    return ", ".join([basis.kind, *words])


SIZES = ("degree", "centres", "knots", "frequencies")
