"""Training: rows, candidates, their ranking, evaluation, and the model that is saved.

- `report`: From the description of a model, and summaries of what it classified, to what the report shows.
- `request`: The parameters of `train`.  This module evaluates its annotations: `flows.runs.parameters` says
  why.
- `results`: What a training passes from step to step, and what comes out of it.
- `steps`: Train a model: the work itself, with or without Prefect.

For this folder alone:

- `_ballots`: The rows that a batch contributes: one each, or one for each class that reviewers' answers are shared
  between.
- `_candidate_data`: What every candidate is given: rows, and where there are too many for the memory, all of them on
  the disk.
- `_candidate_parts`: The parts of a candidate: the widths of its basis and the scales of its prior that
  matter, each with its share.
- `_candidates`: One candidate: fitted to the training rows, judged on rows that its fits have not seen.
- `_checks`: The check of a model's posteriors against the exact ones: which parts are checked, and what is
  said of it.
- `_collected`: Rows as they come from the catalogues: all of them in memory; of many, a sample there and all on the
  disk.
- `_evaluation`: How good a model is on rows that no fit saw: the report's numbers, from probabilities and
  truth alone.
- `_gather`: The labelled rows of a training, gathered once from the catalogues.
- `_ingest`: What is known of the labelled rows before any fit: the counts, the features' quality, the
  inputs' hashes.
- `_judged_objects`: From the probabilities of the rows that judge to what the report shows of them.
- `_label_noise`: Wrong labels: the shares that a specification states, or that are found in the training
  rows.
- `_objects`: What labelled objects are called, where and how bright they are, so that people can look at them
  later.
- `_overdispersion`: Votes as targets: counts of each class, or fractions with a total, and how much more
  they scatter than chance.
- `_photometry`: What a training learns of its photometry: the softening of asinh magnitudes, and the units
  of the fluxes.
- `_pieces`: Labelled rows that the workers of an engine read, file by file, returned here in the order of the
  catalogues.
- `_quality`: The quality of a labelled catalogue, for the report of a training: columns, duplicates,
  outliers, leaks.
- `_ranking`: Which candidate becomes the model, or which of them do, from the rows of the evidence table
  alone.
- `_read_rows`: One batch of a labelled catalogue, as the rows that train.
- `_row_counts`: Counts of the labelled rows, as sums: of all rows at once, or of shards one after the other.
- `_rows`: The labelled rows of a training: the same for all candidates.
- `_saving`: The end of a training: the chosen candidates become a classifier, are evaluated, and go to the
  store.
- `_shards`: Fits to rows on the disk: sums over shards, wherever the engine has them made.
- `_shift`: A training set unlike the target: how well they can be separated, weights for the rows, shares
  for the classes.
- `_staging`: What a training keeps in its staging folder: the rows, their filled features, and what was
  said of them.
- `_stored_places`: The split of rows that are stored on the disk, and the names that several of them have; read piece
  by piece.
- `_stored_rows`: Labelled rows that are too many for the memory: arrays on the disk, read a shard at a time.
- `_target_rows`: Rows of the catalogue to classify, read at the training: what the labelled ones are
  compared with.
- `_temperature`: Left-out probabilities of the mixture of candidates, and the temperature that is estimated from
  them.
- `_weight_pictures`: What the report shows of the weights: their way to the mode, and the posterior of two of
  them, exact and approximate.
"""

__all__ = ["report", "request", "results", "steps"]
