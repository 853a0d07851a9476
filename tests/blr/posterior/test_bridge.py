"""Evidence by bridge sampling against quadrature and long importance sampling, on separable problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blr.gaussian import GaussianPrior
from blr.posterior.kinds import LaplacePosterior, Posterior
from blr.posterior.laplace import fit
from blr.posterior.sampling import bridge_evidence, sample_posterior
from blr.trust.verdict import log_posterior
from tests.blr.conftest import Twin

REFERENCES = json.loads((Path(__file__).parents[2] / "reference" / "bridge.json").read_text(encoding="utf-8"))
REPEATS = 2


def fitted(reference: dict[str, Any]) -> LaplacePosterior:
    softmax = reference["likelihood"] == "softmax"
    Phi, variance = np.array(reference["Phi"]), np.array(reference["prior_variance"])
    prior = GaussianPrior(0.0, variance[: Phi.shape[1]])
    classes = range(len(reference["t"][0]) if softmax else 2)
    return fit(Phi, np.array(reference["t"]), prior, reference["likelihood"], classes=classes)


@pytest.mark.long
@pytest.mark.usefixtures("quick")
def test_evidence_of_separable_problems() -> None:
    """Within 0.05 nats of brute force, with an error that is neither too small nor meaningless."""
    z = []
    for reference in REFERENCES:
        q = fitted(reference)
        for seed in range(REPEATS):
            s = sample_posterior(q, rng=np.random.default_rng(seed))
            value, error = bridge_evidence(s, rng=np.random.default_rng(100 + seed))
            assert value == pytest.approx(reference["log_evidence"], abs=0.05), reference["name"]
            assert error < 0.03
            z.append((value - reference["log_evidence"]) / np.hypot(error, reference["error"]))
    assert 0.4 < np.sqrt(np.mean(np.square(z))) < 1.3
    assert np.abs(z).max() < 3.5


def test_the_log_posterior_is_normalised_by_its_prior(dense: Twin) -> None:
    Phi, t = dense.softmax(0, N=40, M=2, K=3)
    for likelihood, target in (("softmax", t), ("logistic", t[:, 0])):
        q = fit(Phi, target, GaussianPrior(0.3, [4.0, 1.0]), likelihood)
        at_mode = log_posterior(q.problem, q.mode[None])[0]
        D = len(q.mode)
        laplace = at_mode + 0.5 * D * np.log(2 * np.pi) - 0.5 * q.gaussian.log_det_precision
        assert laplace == pytest.approx(q.log_evidence, abs=1e-9)


@pytest.mark.usefixtures("quick")
def test_says_what_is_wrong(dense: Twin) -> None:
    Phi, t = dense.binary(0, N=40, M=2)
    q = fit(Phi, t, GaussianPrior(0.0, 1.0))
    with pytest.raises(ValueError, match=r"needs a posterior with 64 draws or more, got one with none"):
        bridge_evidence(q)
    with pytest.raises(ValueError, match=r"got one with 32"):
        bridge_evidence(sample_posterior(q, n_draws=32))
    with pytest.raises(RuntimeError, match="does not hold the training data"):
        bridge_evidence(Posterior.from_dict(sample_posterior(q, n_draws=256).to_dict()))
