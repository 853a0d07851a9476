"""Training: rows, candidates, their ranking, evaluation, and the model that is saved.

- `report`: The content of a training's report, from the description of a model and summaries of what it
  classified.
- `request`: The parameters of `train`.  This module evaluates its annotations: `flows.runs.parameters` says
  why.
- `results`: What the steps of a training pass on, and the results of a training.
- `steps`: The steps of a training, which run with or without Prefect.

For this folder alone:

- `_collected`: Labelled rows as they are read: kept in memory or, if they are too many, on the disk with a
  sample in memory.
- `_density_shards`: Density ratios of labelled rows on the disk: a comparison with the target, and weights, by
  sums over shards.
- `_evaluation`: How good a model is on rows that no fit saw: the numbers of the report, from probabilities and
  true classes.
- `_freed_memory`: Memory that is given back as soon as arrays are freed, for trainings of very many rows.
- `_gather`: The labelled rows of a training, gathered once from the catalogues.
- `_ingest`: The description of the labelled rows before any fit: counts, the quality of features, hashes of the
  inputs.
- `_judged_objects`: Curves, counts and notable objects that the report shows of the rows that judge a model.
- `_label_noise`: Shares of wrong labels: stated by a specification, or estimated from the training rows.
- `_objects`: Names, positions and magnitudes of labelled objects, so that people can look at them later.
- `_photometry`: The softening of asinh magnitudes and the units of fluxes, as a training finds them in its
  catalogues.
- `_pieces`: Reading labelled rows by the workers of an engine, a piece each; rows come back in catalogue order.
- `_quality`: The quality of a labelled catalogue, for the report of a training: columns, duplicates,
  outliers, leaks.
- `_read_rows`: How one batch of a labelled catalogue becomes training rows.
- `_row_counts`: Counts of the labelled rows, over all rows at once or summed over shards.
- `_row_labels`: The labels of a batch's training rows, with weights; an object whose reviewers differ has
  several rows.
- `_rows`: The labelled rows of a training, which are the same for all candidates.
- `_saving`: The end of a training: the chosen candidates become a classifier, which is evaluated and stored.
- `_shards`: Fits to rows on the disk, by sums over shards that the workers of an engine compute.
- `_shift`: Corrections for a training set that differs from the target: weights of the rows, or shares of the
  classes.
- `_staging`: The staging folder of a training: the rows, their filled features, their description, and fitted
  members.
- `_stored_places`: The split of rows on the disk, and the hashes of their objects' names, read piece by piece.
- `_stored_rows`: Labelled rows that are too many for the memory: arrays on the disk, read a shard at a time.
- `_target_rows`: Rows of the target, the catalogue to classify, which a training compares with the labelled
  rows.
"""

__all__ = ["report", "request", "results", "steps"]
