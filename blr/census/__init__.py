"""How many objects of each class there are, how pure and complete a selection is, with intervals that hold.

- `audit`: Shares of classes from objects that people have looked at: intervals that hold whatever the model is.
- `fraction_map`: Fractions over covariates and the sky: k of n labelled objects as the target of a logistic
  regression, and its sums.
- `prediction_sets`: Prediction sets: the classes that an object's probabilities do not exclude; the true one is kept
  at a stated rate.
- `strata`: Strata of an audit, and how many objects are drawn of each.
"""

__all__ = ["audit", "fraction_map", "prediction_sets", "strata"]
