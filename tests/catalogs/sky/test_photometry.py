"""Photometry against the surveys' own numbers, and by going there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalogs.errors import CatalogError
from catalogs.sky import photometry as p

NAN = np.nan


def test_magnitudes() -> None:
    """One nanomaggy is 22.5, one nJy 31.4, one Jy 8.90; without positive flux there is none."""
    np.testing.assert_allclose(p.magnitude([1.0, 100.0]), [22.5, 17.5])
    np.testing.assert_allclose(p.magnitude(1.0, p.ZERO_POINT["nJy"]), 31.4)
    np.testing.assert_allclose(p.magnitude(3631.0, p.ZERO_POINT["Jy"]), 0.0, atol=1e-3)
    np.testing.assert_array_equal(p.magnitude([0.0, -1.0, NAN]), [NAN] * 3)


def test_magnitude_errors() -> None:
    """One per cent of flux is 0.0109 mag."""
    np.testing.assert_allclose(p.magnitude_error([100.0, 10.0], [1.0, 1.0]), [0.010857, 0.108574], rtol=1e-4)
    np.testing.assert_array_equal(p.magnitude_error([0.0, -1.0], [1.0, 1.0]), [NAN, NAN])
    np.testing.assert_array_equal(
        p.error_from_inverse_variance([4.0, 0.0, -0.0, -1.0]), [0.5, np.inf, np.inf, NAN]
    )


@pytest.mark.parametrize(
    ("band", "mag"), [("u", 24.63), ("g", 25.11), ("r", 24.80), ("i", 24.36), ("z", 22.83)]
)
def test_sdss_magnitudes_of_no_flux(band: str, mag: float) -> None:
    """SDSS's table of asinh magnitudes at zero flux, https://www.sdss4.org/dr17/algorithms/magnitudes/."""
    assert round(float(p.asinh_magnitude(0.0, p.SDSS_SOFTENING[band])), 2) == mag


def test_asinh_magnitudes_of_bright_sources_are_magnitudes() -> None:
    """At flux over f0 = 10 b they differ by 1 % of the flux, as SDSS says; of bright sources not at all."""
    b = p.SDSS_SOFTENING["r"]
    faint = 10 * b * 1e9
    assert 0 < float(p.magnitude(faint) - p.asinh_magnitude(faint, b)) < 0.0109
    np.testing.assert_allclose(p.asinh_magnitude(1e5, b), p.magnitude(1e5), atol=1e-9)


@given(st.floats(-1e3, 1e3), st.sampled_from([0.0, 8.9, 22.5, 31.4]))
def test_asinh_magnitudes_invert(ratio: Any, zero_point: Any) -> None:
    """Flux to asinh magnitude and back, whatever the unit, negative fluxes too."""
    b = 1.2e-10
    unit = b * 10 ** (zero_point / 2.5)
    mag = p.asinh_magnitude(ratio * unit, b, zero_point)
    flux = 2 * unit * np.sinh(-mag * np.log(10) / 2.5 - np.log(b))
    np.testing.assert_allclose(flux, ratio * unit, rtol=1e-9, atol=1e-9 * unit)


def test_asinh_errors_are_the_derivative() -> None:
    b, flux, step = 1.2e-10, np.array([-0.5, 0.0, 0.1, 10.0]), 1e-6
    slope = (p.asinh_magnitude(flux + step, b) - p.asinh_magnitude(flux - step, b)) / (2 * step)
    np.testing.assert_allclose(p.asinh_magnitude_error(flux, 0.3, b), 0.3 * np.abs(slope), rtol=1e-6)


def test_softening() -> None:
    """The median error, of those that are known, as a fraction of the flux of magnitude 0."""
    assert p.softening_of([0.1, 0.12, 0.3, NAN, 0.0, np.inf]) == pytest.approx(1.2e-10)
    with pytest.raises(CatalogError, match="state the softening"):
        p.softening_of([NAN])
    with pytest.raises(CatalogError, match="expected a positive number"):
        p.asinh_magnitude(1.0, 0.0)


def test_extinction() -> None:
    """Coefficients of DECam, of SDSS, or one's own; from E(B-V), or from what gets through."""
    np.testing.assert_allclose(p.extinction([0.1, NAN], "r"), [0.2165, NAN])
    np.testing.assert_allclose(p.extinction(0.1, "r", coefficients=p.EXTINCTION["sdss"]), 0.2285)
    np.testing.assert_allclose(p.extinction(0.5, "K", coefficients={"K": 0.3}), 0.15)
    np.testing.assert_allclose(p.dereddened_flux([8.0, 1.0, 1.0], [0.8, 0.0, NAN]), [10.0, NAN, NAN])
    through = 10 ** (-0.4 * p.extinction(0.1, "g"))
    np.testing.assert_allclose(
        p.magnitude(p.dereddened_flux(5.0, through)), p.magnitude(5.0) - p.extinction(0.1, "g")
    )
    with pytest.raises(CatalogError, match=r"band 'R'.*did you mean 'r'"):
        p.extinction(0.1, "R")


def test_sentinels() -> None:
    """Exact in the column's precision, in closed ranges, in text; integers stay whole where none is found."""
    values = np.array([20.5, -99.9, 99, 98, NAN], np.float32)
    np.testing.assert_array_equal(
        p.apply_sentinels(values, [-99.9, (98, 99)]), np.array([20.5] + [NAN] * 4, np.float32)
    )
    whole = np.array([1, -9999])
    np.testing.assert_array_equal(p.apply_sentinels(whole, [-9999.0]), [1, NAN])
    assert p.apply_sentinels(whole, [7.5, "-"]) is whole
    assert p.apply_sentinels(np.array([1, 2], dtype=np.uint8), [-9999, 300, 0.5]).tolist() == [1, 2]
    identifiers = np.array([2**60 + 1, -1])
    kept = p.apply_sentinels(identifiers, [-1])
    assert kept[0] == 2**60 + 1
    assert np.ma.getmaskarray(kept).tolist() == [False, True]
    assert p.apply_sentinels(np.array(["E", "-"], object), ["-", -99]).tolist() == ["E", ""]


def test_states_are_kept_apart() -> None:
    """Not observed, not detected and masked are three things; NaN is the first unless said otherwise."""
    values = np.ma.MaskedArray([20.0, -99, 99, NAN, -1, 99], mask=[0, 0, 0, 0, 0, 1])
    options = {"not_observed": [-99], "not_detected": [99], "masked": [(-2, -1)]}
    S = p.State
    expected = [S.MEASURED, S.NOT_OBSERVED, S.NOT_DETECTED, S.NOT_OBSERVED, S.MASKED, S.NOT_OBSERVED]
    assert p.states(values, **options).tolist() == expected
    assert p.states(values, **options, otherwise=S.MASKED).tolist()[3] == S.MASKED
    assert p.states(np.array([1, -99]), not_observed=[-99]).tolist() == [0, 1]


def test_masked_input() -> None:
    """Astropy's masked columns are missing where masked."""
    np.testing.assert_array_equal(p.magnitude(np.ma.MaskedArray([1.0, 1.0], mask=[0, 1])), [22.5, NAN])
