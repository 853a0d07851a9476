"""Calls that a type checker has to accept, with the types that it has to find; nothing here is run."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import blr
import catalogs
import flows
from blr.arrays import Table
from blr.posterior.kinds import LaplacePosterior, RefinedPosterior, SampledPosterior

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
t = X[:, 0] > 0

basis = blr.fit_basis("polynomial", X, degree=2)
assert_type(basis, blr.Basis)
Phi = basis(X)
assert_type(Phi, NDArray[np.float64])
assert_type(basis.n_functions, int)

prior = blr.GaussianPrior.isotropic(basis.n_functions, 1.0)
assert_type(blr.fit(Phi, t, prior), LaplacePosterior)
q = blr.fit_evidence(Phi, t)
assert_type(q, LaplacePosterior)
assert_type(q.log_evidence, float)
assert_type(q.trust.verdict, str)
refined, sampled = blr.refine(q), blr.sample_posterior(q, rng=rng)
assert_type(refined, RefinedPosterior)
assert_type(sampled, SampledPosterior)
any_of_them: blr.Posterior = sampled if q.trust.verdict == "red" else refined
assert_type(any_of_them.classes[1:] == (), bool)
table = blr.compare([q, refined])
assert_type(table.table(), Table)
assert_type(blr.bridge_evidence(sampled)[0], float)
assert_type(blr.Flag.CLOSE_CALL | blr.Flag.FLIPPED, blr.Flag)

weights = q.summary(level=0.9)
assert_type(weights, Table)
assert_type(blr.compare({"linear": q}).names, tuple[str, ...])

frame = pd.DataFrame({"u_r": X[:, 0], "r_i": X[:, 1]})
blr.fit_evidence(blr.fit_basis("linear", frame)(frame), pd.Series(t))
blr.fit_evidence([[1.0, 0.5], [1.0, 0.1], [1.0, 0.2]], [True, False, True])

model = blr.LaplaceClassifier(basis="rbf", posterior="refined").fit(frame, t)
assert_type(model, blr.LaplaceClassifier)
assert_type(model.predict_proba(frame), NDArray[np.float64])

catalog = catalogs.open(Path("survey.fits"))
assert_type(catalog, catalogs.Catalog)
assert_type(catalog.names, tuple[str, ...])
assert_type(catalog.n_rows, int)
assert_type(catalogs.annotate_table(frame, [], dict, read=["u_r"]), pd.DataFrame)

trained = flows.classifier_from(frame, label="type", features=["u_r"], candidates=["linear"])
assert_type(trained, flows.TableClassifier)
assert_type(trained.classify(frame), pd.DataFrame)
assert_type(trained.model, flows.Model)
assert_type(flows.Store(Path("models")).load("morphology"), flows.Model)
assert_type(flows.classify_table(frame, model="morphology"), pd.DataFrame)
assert_type(flows.read_specification("spec.toml"), flows.Specification)
version: str = blr.__version__ + catalogs.__version__ + flows.__version__
