"""Classification of catalogues and releases: plan, jobs, scores, and what is published.

- `annotation`: One file annotated into the staging folder; and several, one's own faults not in the others'
  way.
- `census_taking`: The census of an output folder, taken again, or of a table in memory: one call each.
- `execution`: A plan carried out: files annotated, each on its own, then all given their final names; the
  same for every flow.
- `explanation`: Why one object of a catalogue has its class: its row is found, scored, and taken apart.
- `feature_space`: The rows of annotated copies as points: the model's features, whitened, in which labelled
  objects lie too.
- `map_results`: The results of `map`: fractions of a class over the sky, in all and by bins of what they may depend on.
- `release_changes`: What a challenger would change in the last release: a sample of it classified by both
  models, nothing written.
- `report`: From the counts of a classification to what a report shows of it, and the report itself.
- `reprocessing`: Bring a release up to date: the work itself, with or without Prefect.
- `request`: The parameters of `census`, `classify`, `reprocess`, `map` and `explain`.
- `scoring`: From a batch of a catalogue to its new columns: the one place where a model meets rows.
- `sky_maps`: Maps of fractions over the sky: how many of a class there are, how contaminated or complete a selection
  is.
- `steps`: Classify catalogues with a stored model: the work itself, with or without Prefect.

For this folder alone:

- `_bins`: Bins of an expression over a model's features, of which labelled rows and classified ones are kept.
- `_census`: The census of an output folder: class counts, purity and completeness, under an assumption that is
  named.
- `_census_bins`: The census by bins of an expression over features: class counts, purity and completeness of
  each bin.
- `_census_rows`: Classified rows that a census is made of: a sample taken while files are annotated.
- `_census_wish`: What a specification asks of a census.
- `_class_shares`: Class shares of a catalogue that is classified: the model's, given, or estimated from the
  catalogue itself.
- `_difference`: What differs between two annotations of a file: objects that changed class, gained or lost
  a flag, moved in p.
- `_disk_space`: Room for the copies of a classification: whether there is enough, and when slim ones are
  the better choice.
- `_engine_choice`: The engine that a classification runs on: the request's, else the specification's, else threads.
- `_examples`: Why some objects of a classification have their class: examples for the report.
- `_explained_parts`: Contributions and nearest labelled objects of a row, as `explain` and the report show them.
- `_hashing`: Hashes of inputs whose state differs from the one that was written down: only their content says
  if they changed.
- `_jobs`: One file's work: what its input is like now, what of it is done already, and what lies in its
  output's place.
- `_map_files`: A map as files: HEALPix FITS and a HATS table, one row a pixel.
- `_map_rows`: What a map is made of: classified rows with positions and quantities, and objects whose class is
  known.
- `_map_sums`: The sums of a map: a first pass for pixels, ranges and labelled rows, their fit, and a second pass for
  the fractions.
- `_narrowed`: A value as one of its base class: what a result shows of a fuller record.
- `_object_survey`: What a classification's report shows of single objects and of the sky, gathered while rows
  stream by.
- `_output_columns`: What `output.columns = "full"` adds, in the order of `catalogs.catalog.new_columns`, and
  what a copy keeps.
- `_plan`: What a classification would do, found out before any work starts and without writing anything.
- `_prediction_sets`: Prediction sets of a classification: learnt from the model's unseen rows; what outputs
  say of them.
- `_publishing`: The end of a classification: final names, `summary.json`, a release's report, and last of
  all `manifest.json`.
- `_releases`: What a release has changed: `_releases/0007.json` in the output folder, one small file a
  release, kept for ever.
- `_selections`: Columns that select objects by their probability, with thresholds for a stated purity or
  completeness.
- `_spreading`: Files annotated by the workers of an engine: orders out, reports back, both as JSON texts.
- `_tally`: What a catalogue's annotation adds up to: class counts with errors, flags, missing shares.
- `_tasks`: What the tasks of a classification get and give: files to be annotated, their records, and the
  publication.
- `_trial`: A trial of a classification: the first rows of each catalogue are scored, and nothing is
  written.
"""

__all__ = [
    "annotation",
    "census_taking",
    "execution",
    "explanation",
    "feature_space",
    "map_results",
    "release_changes",
    "report",
    "reprocessing",
    "request",
    "scoring",
    "sky_maps",
    "steps",
]
