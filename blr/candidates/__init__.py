"""Candidates for a classifier: how each is fitted, which are chosen, and the model that they make.

- `candidate`: A candidate: a basis on some of the features with a likelihood; its row in the table; and the default
  candidates.
- `choice`: The choice of the candidates that make the model.
- `fits`: How a candidate is fitted to the training rows, judged on rows that its fits have not seen, and refined.
- `rows`: The labelled rows that candidates are fitted to and judged on, in memory or streamed.
- `training`: The default run as numerics: arrays in, a classifier out.

For this folder alone:

- `_verdict`: The verdict on a model: whether its probabilities are computed rightly, calibrated, and better than class
  shares.
"""

__all__ = ["candidate", "choice", "fits", "rows", "training"]
