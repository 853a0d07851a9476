"""The tables of the bases that a candidate may have; the keys are the keywords of `fit` of that basis in `blr`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from flows.specification.catalog import SpecificationTable


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
    degree: int = Field(default=2, ge=1, le=6, description="Highest total degree")


class PrincipalBasis(SpecificationTable):
    """The principal components of the features, those of large variance favoured."""

    kind: Literal["principal"]
    power: Annotated[Power | tuple[Power, ...], Some] = Field(
        default=0.5,
        description="Power of a component's variance that scales it, or several, among which the evidence chooses; "
        "0: all directions alike",
    )


class RbfBasis(SpecificationTable):
    """Gaussian bumps about centres found in the training rows."""

    kind: Literal["rbf"]
    centres: int = Field(default=40, ge=1, le=2000, description="How many bumps")
    width: Annotated[Width | tuple[Width, ...] | None, Some] = Field(
        default=None,
        description="Width of a bump in units of a feature's spread, or several, among which the evidence chooses; "
        "default: from the rows",
    )
    linear: bool = Field(default=False, description="The features themselves too")


class LaplacianBasis(SpecificationTable):
    """Sharp peaks about centres found in the training rows, which fall with the sum of the features' distances."""

    kind: Literal["laplacian"]
    centres: int = Field(default=40, ge=1, le=2000, description="How many peaks")
    width: Annotated[Width | tuple[Width, ...] | None, Some] = Field(
        default=None,
        description="Distance, summed over the features in units of their spreads, over which a peak falls by e, or "
        "several, among which the evidence chooses; default: the median distance of rows",
    )
    linear: bool = Field(default=False, description="The features themselves too")


class NystroemBasis(SpecificationTable):
    """Functions about centres that vary together as a Gaussian process does: Nyström's approximation of a kernel."""

    kind: Literal["nystroem"]
    centres: int = Field(
        default=100, ge=1, le=2000, description="How many centres, and at most as many functions"
    )
    width: Annotated[Width | tuple[Width, ...] | None, Some] = Field(
        default=None,
        description="Width of the kernel in units of a feature's spread, or several, among which the evidence chooses: "
        "of a Laplacian kernel the summed distance over which it falls by e; default: from the rows",
    )
    kernel: Literal["laplacian", "gaussian"] = Field(
        default="laplacian",
        description="Laplacian: logits may bend sharply along a feature; Gaussian: they are smooth",
    )


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
    frequencies: int = Field(default=50, ge=1, le=2000, description="Number of cosines")
    lengthscale: float | None = Field(
        default=None, gt=0, description="Length scale of the function; default: from the rows"
    )


class ForestBasis(SpecificationTable):
    """The logits of a small forest of trees: local structure that no smooth function follows."""

    kind: Literal["forest"]
    trees: int = Field(default=64, ge=8, le=1000, description="Number of trees")
    split: Literal["random", "best"] = Field(
        default="random",
        description="Thresholds at random, or the best of those of a few features",
    )
    leaf: int | None = Field(
        default=None, ge=1, description="Fewest rows of a leaf; default: 3, or 2 from 400 rows on"
    )
    linear: bool = Field(default=False, description="The features themselves too")
    boosted: bool = Field(
        default=False, description="Each tree grown on what those before leave unexplained, in five folds"
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
