"""Basis functions φ_m(x): from features X, shape (N, F), to a design matrix Φ, shape (N, M).

- `base`: What every basis is: functions φ_m(x) of the standardised features, and their derivatives.
- `kinds`: The kinds of basis by their names: `fit_basis` learns one, `basis_from_dict` restores one.
- `rbf`: Gaussian radial basis functions about centres spread over the training set.
- `sigmoid`: Sigmoids of single features: soft steps at the quantiles of the training set.
- `standardisation`: Features of zero mean and unit variance, as learned from the training set.

For this folder alone:

- `_bspline`: B-splines of single features, with knots at the quantiles of the training set.
- `_centred`: Functions that are local to centres, and the features themselves if asked for.
- `_directions`: Directions in which rows or functions vary: eigenvectors of a covariance, those of large
  variance first.
- `_distances`: Distances between rows: where to put centres, and how far apart rows typically are.
- `_forest`: Trees: the logits of a small forest.
- `_fourier`: Random Fourier features: a Gaussian process with a squared-exponential kernel, in finitely
  many functions.
- `_laplacian`: Laplacian kernel functions about centres spread over the training set, with a sharp peak at
  each centre.
- `_linear`: The features themselves: the polynomial of degree 1.
- `_nystroem`: Functions whose weights make a Gaussian process: Nyström's approximation of a kernel.
- `_polynomial`: Polynomials of the features with all their interactions.
- `_principal`: Principal components of the standardised features, those of large variance favoured by the
  prior.
"""

__all__ = ["base", "kinds", "rbf", "sigmoid", "standardisation"]
