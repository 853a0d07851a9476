"""Comparison and averaging of models: evidence, left-out predictions, priors and label noise.

- `compare`: Candidates side by side: evidence, BIC, approximate leave-one-out; averaging by evidence (PRML
  3.4, 4.4.1).
- `evidence`: The evidence as a function of the prior's precisions, and its maximum (PRML, section 3.5; MacKay 1992).
- `folds`: Left-out predictions by folds: each row's probabilities under a fit that has not seen its fold.
- `grouping`: Classes that the features cannot tell apart, and the groups of classes that lose least.
- `label_noise`: The share of wrong labels: a model of it, and its posterior from left-out probabilities.
- `prior_scale`: The prior's scale, for all functions or one for each (relevance determination), averaged over its
  posterior.
- `skill`: Whether a model predicts better than the class shares alone, and by how much.
- `stacking`: Stacking: the mixture of models that predicts the left-out rows best.

For this folder alone:

- `_comparison`: The ranking of models by evidence, and the table of a comparison as people and notebooks
  read it.
- `_left_out`: Predictions of rows without themselves, by one Newton step from the posterior of all rows.
"""

__all__ = ["compare", "evidence", "folds", "grouping", "label_noise", "prior_scale", "skill", "stacking"]
