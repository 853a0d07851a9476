"""From moments of the activation to probabilities of classes, with their errors.

- `binary`: Predictive probability of two classes: E[f(a)] over a Gaussian activation a ~ N(mean, variance).
- `expectations`: Value, gradient and curvature of ln p(t | a), averaged over a Gaussian activation a ~ N(m,
  V) of each row.
- `extrapolation`: Predictions beyond the training set's range: a mixture of two continuations, since labels
  say nothing there.
- `mixture`: Predictions and their mixtures: over models, over missing features, over measurement errors.
- `output_moments`: Mean and covariance of new rows' activations under N(w | m, A⁻¹), A = L Lᵀ: z = L⁻¹ φ
  gives the covariance as z'z.
- `scores`: What a catalogue gets of each row: probabilities, their intervals, entropy and mutual information.
- `softmax`: The expected softmax of Gaussian activations: by a series, and by cubature.
- `softmax_at_nodes`: E[softmax(a)] and E[H] over activations whose moments are known at nodes, each node with inner
  points of its own.
- `temperature`: Temperature scaling: probabilities are taken to a power b, p_k^b / Σ_j p_j^b, where left-out rows
  favour one.

For this folder alone:

- `_cubature`: Points and weights of Gaussian integrals: Sobol sequences, and cubature rules by the number of outputs.
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
