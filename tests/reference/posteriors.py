"""Reference posteriors: predictive probabilities and evidences of small problems, to three digits and more.

Run `python tests/reference/posteriors.py` to make `posteriors.json` anew; it takes some minutes.  Nothing here comes
from `blr`.  One and two weights: the trapezoid rule on a grid.  More: elliptical slice sampling (Murray, Adams and
MacKay 2010, arXiv:1001.0175) with respect to a wide Gaussian about the mode, thousands of chains side by side, and the
evidence by importance sampling from Student's t.  The error column is the standard error between groups of chains.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, log_expit, log_ndtr, logsumexp

HERE = Path(__file__).parent
CHAINS, WARM, KEPT, THIN = 1000, 120, 120, 3


LOG_CDF = {
    "logistic": (log_expit, lambda a: log_expit(-a)),
    "probit": (log_ndtr, lambda a: log_ndtr(-a)),
    "cloglog": (
        lambda a: np.where(a < -30, a, np.log(-np.expm1(-np.exp(np.clip(a, -30, 700))))),
        lambda a: -np.exp(np.minimum(a, 700)),
    ),
    "cauchit": (
        lambda a: np.log(np.maximum(0.5 + np.arctan(a) / np.pi, 1e-300)),
        lambda a: np.log(np.maximum(0.5 - np.arctan(a) / np.pi, 1e-300)),
    ),
}


class Problem:
    """Targets, prior and test rows of one problem; weights are flat in order k M + m."""

    def __init__(
        self,
        name: str,
        likelihood: Any,
        Phi: np.ndarray,
        t: np.ndarray,
        mean: Any,
        covariance: np.ndarray,
        test: Any,
        weight: np.ndarray = None,
    ) -> None:
        self.name, self.likelihood = name, likelihood
        self.Phi, self.t = np.round(Phi, 4), np.asarray(t, dtype=float)
        self.K = self.t.shape[1] if likelihood == "softmax" else 1
        self.D = self.K * Phi.shape[1]
        self.mean = np.round(np.broadcast_to(mean, self.D), 4).astype(float)
        covariance = np.asarray(covariance, dtype=float)
        full = np.diag(np.broadcast_to(covariance, self.D)) if covariance.ndim < 2 else covariance
        self.covariance, self.test = np.round(full, 4), np.round(test, 4)
        self.weight = None if weight is None else np.round(weight, 4)
        self.P = np.linalg.inv(self.covariance)

    def log_joint(self, W: np.ndarray) -> Any:
        """Return ln p(D, w) of weights W (S, D)."""
        d = W - self.mean
        log_det = np.linalg.slogdet(2 * np.pi * self.covariance)[1]
        prior = -0.5 * np.einsum("sd,de,se->s", d, self.P, d) - 0.5 * log_det
        w = np.ones(len(self.Phi)) if self.weight is None else self.weight
        if self.likelihood == "softmax":
            a = (W.reshape(len(W) * self.K, -1) @ self.Phi.T).reshape(len(W), self.K, -1)
            top = a.max(axis=1)
            log_sum = top + np.log(np.exp(a - top[:, None]).sum(axis=1))
            value = np.einsum("nk,skn->sn", self.t, a) - self.t.sum(axis=1) * log_sum
        else:
            up, down = LOG_CDF[self.likelihood]
            a = W @ self.Phi.T
            value = np.where(self.t > 0, self.t * up(a), 0.0)
            value = value + np.where(self.t < 1, (1 - self.t) * down(a), 0.0)
        return value @ w + prior

    def probabilities(self, W: np.ndarray) -> Any:
        """Return the probability of the second class, or of each, at the test rows, (S, n) or (S, n, K)."""
        if self.likelihood == "softmax":
            a = np.einsum("skm,nm->snk", W.reshape(len(W), self.K, -1), self.test)
            return np.exp(a - logsumexp(a, axis=2, keepdims=True))
        return np.exp(LOG_CDF[self.likelihood][0](W @ self.test.T))

    def gaussian(self) -> Any:
        """Return mode and covariance by quasi-Newton steps and differences."""
        energy = lambda w: -self.log_joint(w[None])[0]  # noqa: E731
        w = minimize(energy, self.mean, method="BFGS", options={"gtol": 1e-7}).x
        h = 1e-3 * np.sqrt(np.diag(self.covariance)).clip(max=1.0)
        shifts = np.diag(h)
        H = np.empty((self.D, self.D))
        for i in range(self.D):
            for j in range(i + 1):
                corners = [w + s * shifts[i] + r * shifts[j] for s in (1, -1) for r in (1, -1)]
                e = -self.log_joint(np.array(corners))
                H[i, j] = H[j, i] = (e[0] - e[1] - e[2] + e[3]) / (4 * h[i] * h[j])
        return w, np.linalg.inv(H)


def data_of(problem: Problem) -> dict[str, Any]:
    """Return the problem's data as they are stored."""
    plain = {"name": problem.name, "likelihood": problem.likelihood}
    return plain | {"Phi": problem.Phi.tolist(), "t": problem.t.tolist()}


def results(
    problem: Problem, p: Any, error: Any, log_evidence: float, evidence_error: float
) -> dict[str, Any]:
    """Return the results of a problem as they are stored, and print how sure they are."""
    found = f"{log_evidence:.5f} +- {evidence_error:.1e}"
    print(f"{problem.name:30s} error {error.max():.1e}  ln evidence {found}")
    return {
        "probability": np.round(p, 6).tolist(),
        "error": float(error.max()),
        "log_evidence": round(float(log_evidence), 6),
        "log_evidence_error": evidence_error,
    }


def by_grid(problem: Any, n: int = 801, reach: float = 30.0) -> Any:
    """Return probabilities and ln evidence of one or two weights by the trapezoid rule, about where the mass is."""
    w, S = problem.gaussian()
    L = np.linalg.cholesky(S)
    low, high = np.full(problem.D, -reach), np.full(problem.D, reach)
    for final in (False, False, True):
        axes = [np.linspace(a, b, n if final else 201) for a, b in zip(low, high, strict=True)]
        z = np.stack([g.ravel() for g in np.meshgrid(*axes, indexing="ij")], axis=1)
        W = w + z @ L.T
        log_p = np.concatenate([problem.log_joint(part) for part in np.array_split(W, 200)])
        inside = z[log_p > log_p.max() - 42]
        step = np.array([a[1] - a[0] for a in axes])
        low, high = inside.min(axis=0) - 3 * step, inside.max(axis=0) + 3 * step
    log_evidence = logsumexp(log_p) + np.log(np.prod(step)) + np.log(np.diag(L)).sum()
    p = np.exp(log_p - logsumexp(log_p))
    keep = p > p.max() * 1e-18
    found = sum(
        np.tensordot(q, problem.probabilities(part), axes=1)
        for q, part in zip(np.array_split(p[keep], 200), np.array_split(W[keep], 200), strict=True)
    )
    return found, np.zeros_like(found), log_evidence, 0.0


def by_slices(problem: Any, rng: np.random.Generator) -> Any:
    """Return probabilities by elliptical slice sampling, their error, and ln evidence by importance sampling."""
    w, S = problem.gaussian()
    S = 4.0 * S  # wide: what is left of the posterior beside this Gaussian is bounded
    L = np.linalg.cholesky(S)
    P = np.linalg.inv(S)

    def rest(W: np.ndarray) -> Any:
        d = W - w
        return problem.log_joint(W) + 0.5 * np.einsum("sd,de,se->s", d, P, d)

    W = w + 0.5 * rng.standard_normal((CHAINS, problem.D)) @ L.T
    value = rest(W)
    kept = []
    for i in range(WARM + KEPT * THIN):
        nu = rng.standard_normal((CHAINS, problem.D)) @ L.T
        threshold = value + np.log(rng.random(CHAINS))
        angle = rng.uniform(0, 2 * np.pi, CHAINS)
        low, high = angle - 2 * np.pi, angle.copy()
        todo = np.arange(CHAINS)
        new, new_value = W.copy(), value.copy()
        while len(todo):
            c, s = np.cos(angle[todo])[:, None], np.sin(angle[todo])[:, None]
            trial = w + (W[todo] - w) * c + nu[todo] * s
            at = rest(trial)
            ok = at > threshold[todo]
            new[todo[ok]], new_value[todo[ok]] = trial[ok], at[ok]
            todo = todo[~ok]
            left = angle[todo] < 0
            low[todo[left]], high[todo[~left]] = angle[todo[left]], angle[todo[~left]]
            angle[todo] = rng.uniform(low[todo], high[todo])
        W, value = new, new_value
        if i >= WARM and i % THIN == 0:
            kept.append(problem.probabilities(W))
    by_group = np.stack([g.mean(axis=0) for g in np.array_split(np.mean(kept, axis=0), 30)])
    error = by_group.std(axis=0, ddof=1) / np.sqrt(30)
    return by_group.mean(axis=0), error, *importance(problem, w, S / 4.0, rng)


def importance(
    problem: Any, w: np.ndarray, S: np.ndarray, rng: np.random.Generator, n: int = 200_000, dof: float = 6.0
) -> Any:
    """Return ln evidence from draws of Student's t of 1.3 times the Laplace width, and its error."""
    D, L = problem.D, 1.3 * np.linalg.cholesky(S)
    z = rng.standard_normal((n, D)) * np.sqrt(dof / rng.chisquare(dof, (n, 1)))
    log_q = gammaln((dof + D) / 2) - gammaln(dof / 2) - 0.5 * D * np.log(dof * np.pi)
    log_q = log_q - np.log(np.diag(L)).sum() - 0.5 * (dof + D) * np.log1p(np.sum(z**2, axis=1) / dof)
    log_p = np.concatenate([problem.log_joint(part) for part in np.array_split(w + z @ L.T, 200)])
    ratio = log_p - log_q
    r = np.exp(ratio - ratio.max())
    return logsumexp(ratio) - np.log(n), float(r.std() / r.mean() / np.sqrt(n))


def design(rng: np.random.Generator, N: int, M: int) -> Any:
    return np.column_stack([np.ones(N), rng.standard_normal((N, M - 1))])


def problems() -> Iterator[Any]:
    """Yield the problems: ordinary ones, and those that no Gaussian describes."""
    rng = np.random.default_rng(20240)
    Phi = rng.normal(0.5, 1.0, (25, 1))
    t = rng.random(25) < 1 / (1 + np.exp(-1.5 * Phi[:, 0]))
    yield Problem("one weight", "logistic", Phi, t, 0.0, 4.0, np.linspace(-3, 3, 13)[:, None])

    line = np.column_stack([np.ones(21), np.linspace(-4, 4, 21)])
    for link in ("logistic", "probit", "cloglog", "cauchit"):
        name = "line" if link == "logistic" else f"line, {link}"
        Phi = design(rng, 40, 2)
        t = rng.random(40) < 1 / (1 + np.exp(0.5 - 1.2 * Phi[:, 1]))
        yield Problem(name, link, Phi, t, [0.2, 0.0], [25.0, 4.0], line)
    Phi = design(rng, 30, 2)
    yield Problem("separable line", "logistic", Phi, Phi[:, 1] > 0.2, 0.0, [100.0, 100.0], line)
    yield Problem("separable line, broad prior", "logistic", Phi, Phi[:, 1] > 0.2, 0.0, [1e4, 400.0], line)
    t = np.zeros(30)
    t[Phi[:, 1].argmax()] = 1
    yield Problem("one row of a class", "logistic", Phi, t, 0.0, [100.0, 4.0], line)

    Phi = design(rng, 70, 6)
    t = rng.random(70) < 1 / (1 + np.exp(-Phi @ rng.normal(0, 1, 6)))
    B = rng.standard_normal((6, 6))
    full = B @ B.T / 6 + np.eye(6)
    mean, wide = rng.normal(0, 0.5, 6), design(rng, 20, 6) * 1.5
    yield Problem("full prior with a mean", "logistic", Phi, t, mean, full, wide)
    weight = rng.gamma(2.0, 1.0, 70)
    yield Problem("weights, probit", "probit", Phi, t, 0.0, 1.0, design(rng, 20, 6), weight)
    Phi = design(rng, 300, 4)
    a = Phi @ np.array([-5.0, 1.0, 0.5, 0.0])
    t = rng.random(300) < 1 / (1 + np.exp(-a))
    yield Problem("one per cent", "logistic", Phi, t, 0.0, [100.0, 1.0, 1.0, 1.0], design(rng, 20, 4))
    Phi = design(rng, 60, 8)
    t = Phi @ rng.normal(0, 1, 8) > 0
    yield Problem("separable in eight", "logistic", Phi, t, 0.0, 25.0, design(rng, 20, 8))
    Phi, t = design(rng, 12, 10), rng.random(12) < 0.5
    yield Problem("fewer rows than columns", "logistic", Phi, t, 0.0, 1.0, design(rng, 20, 10))

    for name, K, M, N, variance in (("three classes", 3, 3, 120, 2.0), ("five classes", 5, 3, 200, 1.0)):
        Phi = design(rng, N, M)
        k = np.argmax(Phi @ rng.normal(0, 1, (M, K)) + rng.gumbel(size=(N, K)), axis=1)
        yield Problem(name, "softmax", Phi, np.eye(K)[k], 0.0, variance, design(rng, 20, M))
    Phi = design(rng, 40, 3)
    p = np.exp(Phi @ rng.normal(0, 1, (3, 3)))
    votes = np.array([rng.multinomial(rng.integers(1, 12), q / q.sum()) for q in p])
    yield Problem("votes", "softmax", Phi, votes, 0.0, 1.0, design(rng, 20, 3))
    Phi = design(rng, 60, 3)
    k = np.digitize(Phi[:, 1] + 0.5 * Phi[:, 2], [-0.6, 0.6])
    yield Problem("three classes, separable", "softmax", Phi, np.eye(3)[k], 0.0, 25.0, design(rng, 20, 3))
    B = rng.standard_normal((6, 6))
    Phi = design(rng, 60, 2)
    k = np.argmax(Phi @ rng.normal(0, 1, (2, 3)) + rng.gumbel(size=(60, 3)), axis=1)
    name, mean, full = "classes coupled by the prior", rng.normal(0, 0.5, 6), B @ B.T / 6 + np.eye(6)
    yield Problem(name, "softmax", Phi, np.eye(3)[k], mean, full, design(rng, 20, 2))


def main() -> None:
    rng = np.random.default_rng(7)
    out = []
    for problem in problems():
        weight = None if problem.weight is None else problem.weight.tolist()
        prior = {"prior_mean": problem.mean.tolist(), "prior_covariance": problem.covariance.tolist()}
        data = data_of(problem) | {"weight": weight} | prior | {"test": problem.test.tolist()}
        found = by_grid(problem) if problem.D <= 2 else by_slices(problem, rng)
        out.append(data | results(problem, *found))
    (HERE / "posteriors.json").write_text(json.dumps(out), encoding="utf-8")


if __name__ == "__main__":
    main()
