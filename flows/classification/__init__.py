"""Classification of catalogues and releases: plan, jobs, scores, and what is published.

- `annotation`: Annotation of one file into the staging folder, or of several, where a faulty file does not stop
  the others.
- `census_taking`: A new census of an output folder, and the census of a table in memory.
- `execution`: Execution of a plan, the same for every flow: each file is annotated, then all files get their
  final names.
- `explanation`: Why one object of a catalogue has its class: its row is found, scored, and taken apart.
- `feature_space`: The whitened features of a model, as a space with points for annotated rows and labelled
  objects.
- `map_results`: The results of `map`: fractions of a class over the sky, in all and by bins of what they may depend on.
- `release_changes`: What a challenger would change in the last release: both models classify a sample, and
  nothing is written.
- `reprocessing`: The steps that bring a release up to date, with or without Prefect.
- `request`: The parameters of `census`, `classify`, `reprocess`, `map` and `explain`.
- `scoring`: The new columns of a batch of a catalogue; only this module applies a model to rows of a catalogue.
- `sky_maps`: Maps over the sky of the fraction of a class, or of the contamination or completeness of a
  selection.
- `steps`: The steps of a classification with a stored model, with or without Prefect.

For this folder alone:

- `_bins`: Bins of an expression over a model's features, for labelled rows and for classified ones.
- `_census`: The census of an output folder: class counts, purity and completeness, under an assumption that is
  named.
- `_census_bins`: The census by bins of an expression over features: class counts, purity and completeness of
  each bin.
- `_census_rows`: Classified rows for the census: a sample taken while files are annotated, the same for any
  number of threads.
- `_census_wish`: The questions of a specification to the census; copies do not depend on them, so the settings
  of copies lack them.
- `_class_shares`: Class shares of a catalogue that is classified: the model's, given, or estimated from the
  catalogue itself.
- `_difference`: The differences between two annotations of a file: objects with another class, other flags,
  other probabilities.
- `_disk_space`: Room for the copies of a classification: whether there is enough, and when slim ones are
  the better choice.
- `_engine_choice`: The engine that a classification runs on: the request's, else the specification's, else threads.
- `_examples`: Why some objects of a classification have their class: examples for the report.
- `_explained_parts`: Contributions and nearest labelled objects of a row, as `explain` and the report show
  them.
- `_hashing`: Hashes of inputs whose state differs from the recorded one, since only the content says whether
  they changed.
- `_jobs`: The jobs of a classification, one for each file: the state of its input, what is done already, what
  is left to do.
- `_known_rows`: Rows of a target whose class is known, since a label of the training is theirs.
- `_map_files`: A map as files: HEALPix FITS and a HATS table, one row a pixel.
- `_map_rows`: The data of a map: classified rows with positions and quantities, and objects whose class is
  known.
- `_map_sums`: The sums of a map: a first pass for pixels, ranges and labelled rows, their fit, and a second pass for
  the fractions.
- `_narrowed`: Conversion of a record to its base class, which a result shows without the further fields.
- `_object_survey`: The objects and the sky counts that a classification's report shows, gathered while rows are
  classified.
- `_output_columns`: The columns that `output.columns = "full"` adds, in their order, and those that a slim copy
  keeps.
- `_plan`: What a classification would do, found out before any work starts and without writing anything.
- `_prediction_sets`: Prediction sets of a classification, learnt from the model's unseen rows, and their
  description in outputs.
- `_publishing`: The end of a classification: final names, `summary.json`, a release's report, and last of
  all `manifest.json`.
- `_releases`: The reports of releases, such as `_releases/0007.json`: one small file for each release, kept for
  ever.
- `_repeats`: Objects that two files of a release have: equal files, and identifiers that occur in both.
- `_report`: The content of a classification's report, from its counts, and the report itself.
- `_selections`: Columns that select objects by their probability, with thresholds for a stated purity or
  completeness.
- `_spreading`: Annotation by the workers of an engine, which get orders and return reports, both as JSON texts.
- `_tally`: Counts of an annotated catalogue: classes with errors, flags, shares of missing features.
- `_tasks`: The inputs and results of the tasks of a classification: files to annotate, their records, the
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
    "reprocessing",
    "request",
    "scoring",
    "sky_maps",
    "steps",
]
