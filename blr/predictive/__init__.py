"""From moments of the activation to probabilities of classes, with their errors.

- `binary`: Predictive probability of two classes: E[f(a)] over a Gaussian activation a ~ N(mean, variance).
- `expectations`: Value, gradient and curvature of ln p(t | a), averaged over a Gaussian activation a ~ N(m,
  V) of each row.
- `extrapolation`: Predictions beyond the training set's range: a mixture of two continuations, since labels
  say nothing there.
- `mixture`: Predictions and their mixtures: over models, over missing features, over measurement errors.
- `output_moments`: Mean and covariance of new rows' activations under N(w | m, A⁻¹), A = L Lᵀ: z = L⁻¹ φ
  gives the covariance as z'z.
- `scores`: What a classifier says of a batch of rows.  Shapes: N rows, K classes, S draws of the weights.
- `softmax`: Predictive probabilities of K classes: E[softmax(a)] over Gaussian activations a ~ N(mean,
  covariance).
- `softmax_at_nodes`: E[softmax(a)] and E[H] over activations whose moments are known at nodes, each node with inner
  points of its own.
- `temperature`: Temperature scaling: probabilities are taken to a power b, p_k^b / Σ_j p_j^b, where left-out rows
  favour one.

For this folder alone:

- `_cubature`: Expected softmax of a Gaussian activation at nodes: a product rule along a few axes, Sobol
  points along many.
- `_intervals`: Intervals of class probabilities, from the uncertainty of the weights.
- `_sobol`: Sobol points as standard normal nodes, the same for all rows and on every machine.
- `_softmax_series`: Softmax of an activation known nearly exactly: the heat expansion to fourth order in
  its sd.
"""

__all__ = [
    "binary",
    "expectations",
    "extrapolation",
    "mixture",
    "output_moments",
    "scores",
    "softmax",
    "softmax_at_nodes",
    "temperature",
]
