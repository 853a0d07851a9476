"""Basis functions φ_m(x): from features X, shape (N, F), to a design matrix Φ, shape (N, M).

- `base`: What every basis is: functions φ_m(x) of the standardised features, and their derivatives.
- `kinds`: The kinds of basis by their names: `fit_basis` learns one, `basis_from_dict` restores one.
- `rbf`: Functions around centres: Gaussian and Laplacian radial functions, and Nyström's functions.
- `sigmoid`: Sigmoids of single features: soft steps at the quantiles of the training set.
- `standardisation`: Features of zero mean and unit variance, as learned from the training set.
- `_bspline`: B-splines of single features, with knots at the quantiles of the training set.
- `_forest`: Trees: the logits of a small forest.
- `_fourier`: Random Fourier features: a Gaussian process with a squared-exponential kernel.
- `_polynomial`: Linear and polynomial basis functions, of the features or of their principal directions.
"""

__all__ = ["base", "kinds", "rbf", "sigmoid", "standardisation"]
