"""How many objects of each class there are, how pure and complete a selection is, with intervals that hold.

- `audit`: Shares of classes from objects that people have looked at: intervals that hold whatever the model is.
- `bin_selections`: How pure and how complete selections are in bins of the target, and thresholds of each bin.
- `bins`: Class shares in bins of the target, shrunk to the whole.
- `counts`: Class counts of a target under a stated assumption, or the reason why they are not known.
- `fraction_map`: Fractions over covariates and the sky: k of n labelled objects as a logistic regression's target.
- `prediction_sets`: The classes that an object's probabilities do not exclude; the true one is kept at a stated rate.
- `purity`: How pure and how complete a selection by probability is.
- `results`: Results of a census: the number of objects of each class with an interval, and the assumption behind it.
- `rows`: What a census is made of: labelled rows that the model has not seen, and rows of the target.
- `shares`: Class shares of a target, with draws that say how well they are known.
- `spread`: Samples with known inclusion probabilities, spread over a space, without near-duplicates.
- `strata`: Strata of an audit, and how many objects are drawn of each.
- `_likeness`: Whether labelled rows and target look alike, once each class has its share of the target.
- `_scaling`: Probabilities made to agree with the classes of labelled rows that the model has not seen.
"""

__all__ = [
    "audit",
    "bin_selections",
    "bins",
    "counts",
    "fraction_map",
    "prediction_sets",
    "purity",
    "results",
    "rows",
    "shares",
    "spread",
    "strata",
]
