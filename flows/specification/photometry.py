"""The tables [photometry.NAME]: magnitudes from fluxes, or corrected for extinction, for use in expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from catalogs.errors import ExpressionError
from catalogs.expressions.expression import parse
from catalogs.sky.photometry import EXTINCTION
from flows.specification._fields import SpecificationTable

__all__ = ["ERROR", "Band", "Expression", "Extinction", "made_by"]

ERROR: Final = "_err"
"""End of the name of a magnitude's error."""


def _parsed(text: str) -> str:
    try:
        parse(text)
    except ExpressionError as error:
        raise ValueError(str(error)) from error
    return text


Expression = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_parsed)]


class Extinction(SpecificationTable):
    """The Galactic extinction in a band, from columns of the catalogue."""

    e_bv: Expression | None = Field(default=None, description="Column of E(B-V), on the scale of SFD")
    transmission: Expression | None = Field(
        default=None, description="Column of the transmission: the fraction of the light that is not absorbed"
    )
    magnitudes: Expression | None = Field(
        default=None, description="Column of the extinction itself, magnitudes"
    )
    coefficient: float | None = Field(default=None, gt=0, description="A / E(B-V) of the band")
    system: Literal["decam", "sdss"] | None = Field(
        default=None, description="System whose coefficients are used; needs 'band'"
    )
    band: str | None = Field(default=None, description="Band of that system")

    @model_validator(mode="after")
    def _check(self) -> Extinction:
        if sum(x is not None for x in (self.e_bv, self.transmission, self.magnitudes)) != 1:
            raise ValueError(
                "expected one of e_bv, transmission and magnitudes; give the one that the catalogue has"
            )
        if self.e_bv is not None and (self.coefficient is None) == (self.system is None):
            raise ValueError(
                "e_bv: got neither or both, expected a coefficient, or a system with a band; give one of them"
            )
        if self.system is not None and self.band not in EXTINCTION[self.system]:
            known = ", ".join(EXTINCTION[self.system])
            raise ValueError(f"got band '{self.band}', expected one of {known}; or state the coefficient")
        return self

    @property
    def factor(self) -> float:
        """The coefficient A / E(B-V) of the band."""
        return self.coefficient or EXTINCTION[str(self.system)][str(self.band)]


class Band(SpecificationTable):
    """One magnitude: from a flux or from another magnitude, corrected for extinction."""

    flux: Expression | None = Field(default=None, description="Column of the flux")
    magnitude: Expression | None = Field(default=None, description="Column of the magnitude")
    unit: Literal["nanomaggy", "nJy", "uJy", "mJy", "Jy"] | None = Field(
        default=None, description="Unit of the flux, if the column does not state one that can be read"
    )
    scale: Literal["asinh", "pogson"] = Field(
        default="asinh", description="asinh stays finite where noise made the flux zero or negative"
    )
    softening: float | None = Field(
        default=None,
        gt=0,
        description="b of asinh magnitudes; default: the training rows' median error, stored",
    )
    error: Expression | None = Field(default=None, description="Column of the one-sigma error")
    inverse_variance: Expression | None = Field(default=None, description="Column of the inverse variance")
    extinction: Extinction | None = Field(
        default=None, description="Extinction to correct for; default: none"
    )
    dereddened: bool = Field(
        default=False, description="Whether the catalogue is already corrected for extinction"
    )

    @model_validator(mode="after")
    def _check(self) -> Band:
        if (self.flux is None) == (self.magnitude is None):
            raise ValueError("got neither or both, expected a flux or a magnitude; give one of them")
        if self.error is not None and self.inverse_variance is not None:
            raise ValueError("got error and inverse_variance, expected one of them; remove the other")
        if self.magnitude is not None and (self.unit is not None or self.softening is not None):
            raise ValueError("got unit or softening with a magnitude, which has neither; remove them")
        learned = self.flux is not None and self.scale == "asinh" and self.softening is None
        if learned and self.error is None and self.inverse_variance is None:
            raise ValueError(
                "got no softening of the asinh magnitude, expected one, or an error or inverse_variance from "
                "which it is computed; add one, or set scale = 'pogson'"
            )
        return self

    @property
    def texts(self) -> tuple[str, ...]:
        """The expressions from which the magnitude and its error are computed."""
        taken = self.extinction if self.extinction and not self.dereddened else None
        parts = [self.flux, self.magnitude, self.error, self.inverse_variance]
        parts += [taken.e_bv, taken.transmission, taken.magnitudes] if taken else []
        return tuple(text for text in parts if text is not None)


def made_by(name: str, bands: Mapping[str, Band]) -> str | None:
    """Return the band that defines a name as its magnitude, or as its error if one is stated; None without one."""
    if name in bands:
        return name
    stem = name.removesuffix(ERROR)
    has_error = stem in bands and (bands[stem].error or bands[stem].inverse_variance)
    return stem if name.endswith(ERROR) and has_error else None
