"""The examples of CONTRIBUTING.md work as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blr.likelihood.likelihoods import LINKS

PAGE = Path(__file__).resolve().parent.parent / "CONTRIBUTING.md"


@pytest.fixture
def example(tmp_path: Path) -> Any:
    """Return a function from a section's heading to what its Python example defines."""

    def run(heading: str) -> dict[str, object]:
        section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
        (source,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
        path = tmp_path / "example.py"
        path.write_text(source, encoding="utf-8")
        return runpy.run_path(str(path))

    return run


def test_the_basis(example: Any) -> None:
    X = np.random.default_rng(0).normal(3, [1, 50], size=(40, 2))
    basis = example("Add a basis")["Kink"].fit(X)
    assert basis(X).shape == (40, 5)
    assert basis.names(["u", "g"]) == ("1", "u", "g", "|u|", "|g|")
    assert np.array_equal(type(basis).from_dict(basis.to_dict())(X), basis(X))
    for feature, step in enumerate([1e-6, 5e-5]):
        move = np.eye(2)[feature] * step
        slope = (basis(X + move) - basis(X - move)) / (2 * step)
        assert basis.jacobian(X)[:, :, feature] == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_the_link(example: Any) -> None:
    link = example("Add a likelihood")["LOGLOG"]
    a = np.linspace(-3, 5, 33)
    assert link.name not in LINKS
    assert np.exp(link.log_cdf(a)) == pytest.approx(np.exp(-np.exp(-a)), rel=1e-12)
    assert np.exp(link.log_cdf(a)) + np.exp(link.log_sf(a)) == pytest.approx(1, rel=1e-12)
    for value, derivatives in [
        (link.log_cdf, link.log_cdf_derivatives),
        (link.log_sf, link.log_sf_derivatives),
    ]:
        orders = [value, *(lambda x, k=k, of=derivatives: of(x)[k] for k in range(3))]
        for before, found in zip(orders, derivatives(a), strict=False):
            slope = (before(a + 1e-5) - before(a - 1e-5)) / 2e-5
            assert found == pytest.approx(slope, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_names_only_what_there_is(page: str) -> None:
    root = PAGE.parent
    text = (root / page).read_text("utf-8")
    for name in set(re.findall(r"`((?:blr|catalogs|flows|tests|docs)/[\w/]*\.?\w*)`", text)):
        assert (root / name).exists(), name
