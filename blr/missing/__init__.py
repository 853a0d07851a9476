"""Features that are missing or measured with errors, integrated out; and rows unlike the training set.

- `active_subspace`: A few integration nodes for each pattern of missing features, along the directions in which
  the logit moves.
- `domain`: How unlike the training set a row is, with any of its features missing.
- `excess`: How far a missing feature is integrated: its spread in excess of what the training rows that lack it had.
- `interpolation`: Kriging from a few nodes of an integral to all of them.
- `measurement_errors`: Measurement errors of a target in excess of the training rows' own.
- `moments`: The normal distribution that fills missing features in, and integrals over it.
- `nodes`: Nodes and weights for integrals over a normal distribution of the features: missing ones,
  measurement errors.
- `patterns`: Which features are missing, row by row: there are many rows and few patterns.
- `space`: Rows as points, whitened, so that distances mean something.

For this folder alone:

- `_em`: Mean and covariance of incomplete rows, by the EM algorithm.
"""

__all__ = [
    "active_subspace",
    "domain",
    "excess",
    "interpolation",
    "measurement_errors",
    "moments",
    "nodes",
    "patterns",
    "space",
]
