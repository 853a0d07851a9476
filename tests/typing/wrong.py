"""Calls that a type checker has to reject, each with the code that mypy gives; nothing here is run.

Mypy rejects an `ignore` that it has no need of: `make types` fails where one of these calls is accepted.
"""

from __future__ import annotations

import numpy as np

import blr
import catalogs
import flows

X = np.zeros((3, 2))
q = blr.fit_evidence(X, [0, 1, 1])

blr.fit_evidense(X, [0, 1, 1])  # type: ignore[attr-defined]
blr.fit_basis(X)  # type: ignore[call-arg, arg-type]
blr.fit_basis("linear", X, seed=1, rng="0")  # type: ignore[arg-type]
blr.fit(X, [0, 1, 1], blr.GaussianPrior.isotropic(2), likelihoods="probit")  # type: ignore[call-arg]
q.logevidence  # type: ignore[attr-defined]
q.predict_prob(X)  # type: ignore[attr-defined]
q.elbo  # type: ignore[attr-defined]
q.log_evidence.shape  # type: ignore[attr-defined]
q.summary(0.9).to_htm()  # type: ignore[attr-defined]
blr.compare({1: q})  # type: ignore[dict-item]
blr.compare(q)  # type: ignore[arg-type]
blr.Flag.CLOSE_CAL  # type: ignore[attr-defined]
blr.LaplaceClassifier("rbf")  # type: ignore[call-arg]
catalogs.opened("survey.fits")  # type: ignore[attr-defined]
catalogs.open("survey.fits").column(3)  # type: ignore[arg-type]
flows.classify_tables(X, model="morphology")  # type: ignore[attr-defined]
flows.classify_table(X)  # type: ignore[call-arg]
flows.classifier_from(X, label="type", feature=["u_r"])  # type: ignore[call-arg]
flows.Store("models")  # type: ignore[arg-type]
