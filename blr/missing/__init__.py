"""Features that are missing or measured with errors, integrated out; and rows unlike the training set.

- `active_subspace`: A few integration nodes for each pattern, along the directions in which the logit moves.
- `domain`: How unlike the training set a row is, with any of its features missing.
- `moments`: The moments of features, from rows of which some values are missing (EM), and what they say of these.
- `nodes`: Nodes and weights of the integrals over missing features, and interpolation between nodes.
- `patterns`: Which features are missing, row by row, and the errors of those that are measured.
"""

__all__ = ["active_subspace", "domain", "moments", "nodes", "patterns"]
