"""`blr init` makes the classical ratios of emission lines, and takes no fluxes of lines for axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.flows.starting import started

N = 300
RNG = np.random.default_rng(8)
SDSS = ("H_BETA_FLUX", "OIII_5007_FLUX", "H_ALPHA_FLUX", "NII_6584_FLUX", "SII_6717_FLUX", "SII_6731_FLUX")
OTHERS = ("Hbeta_flux", "oiii_5007_flux", "Halpha_flux", "nii_6583_flux", "sii_6716_flux", "sii_6731_flux")


@pytest.mark.parametrize("names", [SDSS, OTHERS])
def test_lines_make_ratios(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Hbeta is always fainter than Halpha: their ratio was called that of the axes of an ellipse, Halpha a size."""
    beta = RNG.lognormal(3, 1, N)
    alpha = beta * RNG.uniform(2.9, 4, N)
    lines = [
        beta,
        beta * RNG.lognormal(0, 0.5, N),
        alpha,
        *(alpha * RNG.lognormal(-1, 0.4, N) for _ in "123"),
    ]
    columns = dict(zip(names, lines, strict=True)) | {"kind": np.repeat(["a", "b"], N // 2)}
    columns[names[4]][:3] = -1.5
    start = started(tmp_path, columns)
    b, o3, a, n2, s1, s2 = names
    assert start.features == {
        "log_nii_h_alpha": f"log10({n2} / {a})",
        "log_oiii_h_beta": f"log10({o3} / {b})",
        "log_sii_h_alpha": f"log10(({s1} + {s2}) / {a})",
        f"log_{b.lower()}": f"log10({b})",
        f"log_{a.lower()}": f"log10({a})",
        s1.lower(): s1,
        f"log_{s2.lower()}": f"log10({s2})",
    }
    assert "# size" not in start.text
