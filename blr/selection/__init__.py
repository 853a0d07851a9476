"""Comparison and averaging of models: evidence, left-out predictions, priors and label noise.

- `compare`: Candidates side by side: evidence, BIC, approximate leave-one-out; averaging by evidence (PRML
  3.4, 4.4.1).
- `evidence`: Prior precision by evidence maximisation: one for all weights, or one a group.
- `folds`: Left-out predictions by folds: each row's probabilities under a fit that has not seen its fold.
- `grouping`: Classes that the features cannot tell apart, and the groups of classes that lose least.
- `label_noise`: Rates of wrong labels, estimated with the weights integrated out: by class, or by annotator
  and class.
- `prior_scale`: Integration over the prior's scale: a few fits, each weighted by its evidence and a
  hyperprior.
- `relevance`: A width for each feature of radial functions, found by evidence: automatic relevance
  determination.
- `skill`: Whether a model predicts better than the class shares alone, and by how much.
- `stacking`: Stacking: the mixture of models that predicts the left-out rows best.

For this folder alone:

- `_comparison`: The ranking of models by evidence, and the table of a comparison as people and notebooks
  read it.
- `_groups`: Groups of weights that share a prior precision.
- `_left_out`: Predictions of rows without themselves, by one Newton step from the posterior of all rows.
- `_noise_density`: The posterior density of rates of wrong labels, and of the prior's precision, with the
  weights integrated out.
- `_one_precision`: The evidence of one precision α in a quadratic model of the likelihood, in the eigenvectors of
  its curvature.
"""

__all__ = [
    "compare",
    "evidence",
    "folds",
    "grouping",
    "label_noise",
    "prior_scale",
    "relevance",
    "skill",
    "stacking",
]
