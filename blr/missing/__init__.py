"""Features that are missing or measured with errors, integrated out; and rows unlike the training set.

- `active_subspace`: A few integration nodes for each pattern of missing features, along the directions in which
  the logit moves.
- `domain`: How unlike the training set a row is, with any of its features missing.
- `measurement_errors`: Measurement errors of a target in excess of the training rows' own.
- `moments`: The moments of features, from rows of which some values are missing (EM), and what they say of a missing
  value.
- `nodes`: Nodes and weights of the integrals over missing features, and interpolation between nodes.
- `patterns`: Which features are missing, row by row: there are many rows and few patterns.
"""

__all__ = ["active_subspace", "domain", "measurement_errors", "moments", "nodes", "patterns"]
