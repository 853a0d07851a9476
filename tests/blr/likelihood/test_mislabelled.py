"""Labels that may be wrong: likelihoods against finite differences, posteriors against quadrature and plain fits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import blr
from blr.arrays import Matrix, Vector
from blr.likelihood.likelihoods import Bernoulli, Categorical, MislabelledBernoulli, MislabelledCategorical
from blr.likelihood.targets import as_confusion, even_confusion, label_likelihood, recorded_probability
from blr.predictive.expectations import expected_derivatives
from blr.selection.compare import against_records, leave_one_out, leave_one_out_probability
from blr.trust.verdict import draw_terms
from tests.blr.likelihood.test_likelihood import metric

PAIRS = {
    "logistic": (MislabelledBernoulli(), Bernoulli()),
    "softmax, 2 classes": (MislabelledCategorical(2), Categorical(2)),
    "softmax, 4 classes": (MislabelledCategorical(4), Categorical(4)),
    "softmax, all 3 activations": (
        MislabelledCategorical(3, contrasts=False),
        Categorical(3, contrasts=False),
    ),
}
each = pytest.mark.parametrize(("likelihood", "plain"), PAIRS.values(), ids=PAIRS)


@each
def test_without_noise_all_is_that_of_the_plain_likelihood(
    likelihood: MislabelledBernoulli | MislabelledCategorical, plain: Bernoulli | Categorical
) -> None:
    a = 6.0 * np.random.default_rng(0).standard_normal((40, likelihood.n_outputs))
    K = 2 if isinstance(plain, Bernoulli) else plain.n_classes
    label = np.arange(40) % K
    t, V = np.eye(K)[label], metric(40, likelihood.n_outputs)
    theirs = label.astype(float) if isinstance(plain, Bernoulli) else t
    b = np.ones((40, likelihood.n_outputs, 1))
    for ours, twin in zip(likelihood.derivatives(a, t), plain.derivatives(a, theirs), strict=True):
        assert ours == pytest.approx(twin, rel=1e-12, abs=1e-14)
    if isinstance(plain, Bernoulli):
        p, mixed = np.exp(plain.log_likelihood(a, np.zeros(40))), np.where(t > 0.5, 0.9, 0.2)
        recorded = likelihood.log_likelihood(a, mixed)
        assert recorded == pytest.approx(np.log(mixed[:, 0] * p + mixed[:, 1] * (1 - p)), rel=1e-10)
    for verb, argument in (
        ("curvature_gradient", V),
        ("curvature_along", b),
        ("third_squared", V),
        ("fourth_on", V),
    ):
        ours, twin = (getattr(x, verb)(a, y, argument) for x, y in ((likelihood, t), (plain, theirs)))
        assert ours == pytest.approx(twin, rel=1e-10, abs=1e-12), verb
    ours, twin = expected_derivatives(likelihood, a, V, t), expected_derivatives(plain, a, V, theirs)
    for x, y in zip(ours, twin, strict=True):
        assert x == pytest.approx(y, rel=1e-10, abs=1e-12)


@each
def test_far_out_everything_is_finite(
    likelihood: MislabelledBernoulli | MislabelledCategorical, plain: Bernoulli | Categorical
) -> None:
    del plain
    K = 2 if isinstance(likelihood, Bernoulli) else likelihood.n_classes
    sign = np.where(np.arange(likelihood.n_outputs) % 2, -1.0, 1.0)
    a = np.concatenate([np.array([[-900.0], [-60.0], [60.0], [900.0]]) * sign] * 2)
    t = np.tile(even_confusion(np.full(K, 0.1))[:2], (4, 1))
    for x in likelihood.derivatives(a, t):
        assert np.isfinite(x).all()
    value = likelihood.log_likelihood(a, t)
    assert (value <= np.log(t.max(axis=1)) + 1e-12).all()
    assert (value >= np.log(t.min(axis=1)) - 1e-12).all()


def noisy(
    n: int = 150, K: int = 2, F: int = 2, rate: float = 0.1, seed: int = 0, slope: float = 2.0
) -> tuple[Matrix, np.ndarray, np.ndarray]:
    """Return Phi (n, F + 1), recorded classes, true ones and their weights."""
    rng = np.random.default_rng(seed)
    Phi = np.hstack([np.ones((n, 1)), rng.normal(size=(n, F))])
    W = slope * rng.normal(size=(F + 1, K))
    p = np.exp(Phi @ W)
    truth = (rng.random((n, 1)) > np.cumsum(p / p.sum(axis=1, keepdims=True), axis=1)).sum(axis=1)
    wrong = rng.random(n) < rate
    return Phi, np.where(wrong, (truth + rng.integers(1, K, n)) % K, truth), truth


@pytest.mark.parametrize(("name", "K"), [("logistic", 2), ("softmax", 2), ("softmax", 3)])
def test_a_rate_of_zero_is_the_plain_fit(name: str, K: int) -> None:
    Phi, label, _ = noisy(K=K)
    prior = blr.GaussianPrior.isotropic(3)
    twin = blr.fit(Phi, label, prior, name, classes=range(K))
    for confusion in (np.eye(K), 0.0, even_confusion(np.full((len(Phi), K), 1e-15))):
        q = blr.fit(Phi, label, prior, name, classes=range(K), confusion=confusion)
        assert q.mean == pytest.approx(twin.mean, abs=1e-10)
        assert q.log_evidence == pytest.approx(twin.log_evidence, abs=1e-10)
        assert q.second_order == pytest.approx(twin.second_order, abs=1e-9)
        ours, theirs = blr.refine(q), blr.refine(twin)
        assert ours.predict_proba(Phi) == pytest.approx(theirs.predict_proba(Phi), abs=1e-7)


LONG = pytest.mark.long


@pytest.mark.parametrize("name", ["logistic", pytest.param("softmax", marks=LONG)])
def test_the_evidence_is_that_of_quadrature(name: str) -> None:
    Phi, label, _ = noisy(n=400, F=1, rate=0.15, slope=1.2)
    C = np.array([[0.9, 0.1], [0.2, 0.8]])
    prior = blr.GaussianPrior.isotropic(2, precision=0.5 if name == "softmax" else 0.25, intercept=None)
    q = blr.fit(Phi, label, prior, name, classes=(0, 1), confusion=C)
    # The difference of two weights of precision 0.5 has precision 0.25.
    sd = 2.0
    centre = q.mean if name != "softmax" else q.mean[2:] - q.mean[:2]

    def density(w0: float, w1: Vector) -> Vector:
        f = expit(w0 * Phi[:, :1] + np.outer(Phi[:, 1], w1))
        recorded = np.where(label == 1, 1, 0)[:, None]
        p = C[0, recorded] * (1 - f) + C[1, recorded] * f
        prior_term = -0.5 * (w0**2 + w1**2) / sd**2 - np.log(2 * np.pi * sd**2)
        return np.exp(np.log(p).sum(axis=0) + prior_term - q.log_likelihood)

    def integral(step: float) -> float:
        """Return the trapezoidal sum, which converges faster than any power of the step where the ends are zero."""
        w0, w1 = (np.arange(c - 5, c + 6, step) for c in centre)
        return float(sum(density(x, w1).sum() for x in w0)) * step**2

    fine = integral(0.1)
    assert fine == pytest.approx(integral(0.125), rel=1e-5)
    exact = np.log(fine) + q.log_likelihood
    assert q.log_evidence + q.second_order == pytest.approx(exact, abs=0.015)
    assert q.trust.verdict in {"green", "amber"}
    assert blr.refine(q).elbo < exact


@pytest.mark.parametrize("K", [2, pytest.param(3, marks=LONG)])
def test_draws_are_of_the_same_density(K: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blr.posterior.sampling._WORK", 1.0)
    monkeypatch.setattr("blr.posterior.sampling._ERROR", 0.005)  # of the 0.03 that are compared below
    Phi, label, _ = noisy(K=K)
    prior = blr.GaussianPrior.isotropic(3)
    q = blr.fit(Phi, label, prior, "softmax" if K > 2 else "logistic", classes=range(K), confusion=0.1)
    theta = q.gaussian.sample(4, np.random.default_rng(0))
    value, gradient = q.problem.data.accumulate(draw_terms(q.problem.likelihood, theta))
    for s in range(4):
        twin = q.problem.evaluate(theta[s])
        assert value[s] == pytest.approx(twin[0], rel=1e-12)
        assert gradient[s] == pytest.approx(twin[1], rel=1e-9, abs=1e-10)
    assert q.trust.verdict in {"green", "amber"}
    sampled, refined = blr.sample_posterior(q), blr.refine(q)
    assert np.abs(sampled.predict_proba(Phi) - refined.predict_proba(Phi)).max() < 0.03


def test_rows_may_have_matrices_of_their_own() -> None:
    Phi, label, _ = noisy()
    prior = blr.GaussianPrior.isotropic(3)
    C = even_confusion([0.05, 0.2])
    one = blr.fit(Phi, label, prior, classes=(0, 1), confusion=C)
    many = blr.fit(Phi, label, prior, classes=(0, 1), confusion=np.broadcast_to(C, (len(Phi), 2, 2)))
    assert many.mean == pytest.approx(one.mean, abs=1e-12)
    stream = [(Phi[i : i + 50], label[i : i + 50], None) for i in (0, 50, 100)]
    read = blr.fit(stream, None, prior, classes=(0, 1), confusion=C)
    assert read.mean == pytest.approx(one.mean, abs=1e-10)


def test_left_out_rows_are_judged_by_what_was_recorded() -> None:
    Phi, label, _ = noisy(n=80)
    C = even_confusion([0.05, 0.2])
    prior = blr.GaussianPrior.isotropic(3)
    q = blr.fit(Phi, label, prior, classes=(0, 1), confusion=C)
    p, shares, _ = leave_one_out_probability(q)
    assert shares == pytest.approx(np.eye(2)[label])
    assert p.sum(axis=1) == pytest.approx(1)
    assert leave_one_out(q)[0] == pytest.approx(np.log((p * shares).sum(axis=1)).sum())
    rows = np.arange(80)
    for i in (0, 7, 33):
        seen = rows != i
        without = blr.fit(Phi[seen], label[seen], prior, classes=(0, 1), confusion=C)
        true = without.prediction(Phi[[i]]).probability
        assert p[i] == pytest.approx(recorded_probability(true, C)[0], abs=0.01)
    clean = q.prediction(Phi).probability
    p, shares = against_records(q, clean, q.problem.data.t)
    assert (p * shares).sum(axis=1) == pytest.approx((recorded_probability(clean, C) * shares).sum(axis=1))


def test_what_is_no_confusion_is_said() -> None:
    with pytest.raises(ValueError, match="expected \\(3, 3\\)"):
        as_confusion(np.eye(2), 3)
    with pytest.raises(ValueError, match="rows sum to 1"):
        as_confusion([[0.9, 0.2], [0.1, 0.9]], 2)
    with pytest.raises(ValueError, match=r"more than 0\.5"):
        as_confusion(0.5, 2)
    with pytest.raises(ValueError, match="one recorded class in each row"):
        label_likelihood(np.array([[0.5, 0.5]]), np.eye(2))
    Phi, label, _ = noisy(n=20)
    prior = blr.GaussianPrior.isotropic(3)
    with pytest.raises(ValueError, match="votes or trials"):
        blr.fit(Phi, label, prior, trials=np.full(20, 2), confusion=0.1)
    with pytest.raises(ValueError, match="got shares"):
        blr.fit(Phi, np.full(20, 0.3), prior, confusion=0.1)
    with pytest.raises(ValueError, match="beside the likelihood 'probit', expected 'logistic' or 'softmax'"):
        blr.fit(Phi, label, prior, "probit", classes=(0, 1), confusion=0.1)
    with pytest.raises(ValueError, match="2 matrices"):
        blr.fit(Phi, label, prior, classes=(0, 1), confusion=np.stack([even_confusion([0.1, 0.1])] * 2))
    with pytest.raises(ValueError, match="one confusion matrix for all rows"):
        blr.fit([(Phi, label, None)], None, prior, classes=(0, 1), confusion=np.stack([np.eye(2)] * 20))
