"""Training: rows are read and staged, `blr.candidates` makes a classifier of them, and the model is saved.

- `report`: The results of a training, and the content of its report: from a model's description, and what it
  classified.
- `request`: The parameters of `train`.  This module evaluates its annotations: `flows.runs.parameters` says
  why.
- `steps`: The steps of a training, which run with or without Prefect.

For this folder alone:

- `_gather`: The labelled rows of a training, gathered once from the catalogues, and what photometry learns from
  these.
- `_quality`: The quality of a labelled catalogue, for the report of a training: columns, duplicates,
  outliers, leaks.
- `_reading`: How batches of labelled catalogues become training rows, in this process or by the workers of an
  engine.
- `_rows`: Labelled rows: in memory or, if they are too many, on the disk with a sample in memory.
- `_saving`: The end of a training: the classifier is evaluated and stored, with what its report shows.
- `_shards`: Fits to rows on the disk, by sums over shards that the workers of an engine compute.
- `_staging`: The staging folder of a training: the rows, their filled features, their description, and fitted
  candidates.
- `_target`: The target, the catalogue to classify: its rows, how the labelled ones differ, and the corrections
  for that.
"""

__all__ = ["report", "request", "steps"]
