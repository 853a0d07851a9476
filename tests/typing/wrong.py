"""Calls that a type checker has to reject, each with the code that mypy gives; nothing here is run."""

from __future__ import annotations

import numpy as np

import blr
import catalogs
import flows

X = np.zeros((3, 2))
q = blr.fit_evidence(X, [0, 1, 1])

blr.fit_evidense(X, [0, 1, 1])  # wrong: attr-defined
blr.fit_basis(X)  # wrong: call-arg
blr.fit_basis("linear", X, seed=1, rng="0")  # wrong: arg-type
blr.fit(X, [0, 1, 1], blr.GaussianPrior.isotropic(2), likelihoods="probit")  # wrong: call-arg
q.logevidence  # wrong: attr-defined
q.predict_prob(X)  # wrong: attr-defined
q.elbo  # wrong: attr-defined
q.log_evidence.shape  # wrong: attr-defined
q.summary(0.9).to_htm()  # wrong: attr-defined
blr.compare({1: q})  # wrong: dict-item
blr.compare(q)  # wrong: arg-type
blr.Flag.CLOSE_CAL  # wrong: attr-defined
blr.LaplaceClassifier("rbf")  # wrong: call-arg
catalogs.opened("survey.fits")  # wrong: attr-defined
catalogs.open("survey.fits").column(3)  # wrong: arg-type
flows.classify_tables(X, model="morphology")  # wrong: attr-defined
flows.classify_table(X)  # wrong: call-arg
flows.classifier_from(X, label="type", feature=["u_r"])  # wrong: call-arg
flows.Store("models")  # wrong: arg-type
