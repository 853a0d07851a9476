"""Classification of catalogues and releases: plan, jobs, scores, and what is published.

- `annotation`: Annotation of one file into the staging folder, or of several, where a faulty file does not stop
  the others.
- `census_taking`: A new census of an output folder, and the census of a table in memory.
- `execution`: A classification is carried out: here or on workers, file by file, until what is whole is published.
- `explanation`: Why one object of a catalogue has its class: its row is found, scored, and taken apart.
- `feature_space`: The whitened features of a model, as a space with points for annotated rows and labelled
  objects.
- `map_results`: The results of `map`: fractions of a class over the sky, in all and by bins of what they may depend on.
- `release_changes`: What a challenger would change in the last release: both models classify a sample, and
  nothing is written.
- `reprocessing`: The steps that bring a release up to date, with or without Prefect.
- `request`: The parameters of `census`, `classify`, `reprocess`, `map` and `explain`.
- `scoring`: Scores of a batch of rows: features, probabilities, flags, prediction sets, and which rows have labels.
- `sky_maps`: Maps over the sky of the fraction of a class, or of the contamination or completeness of a
  selection.
- `steps`: The steps of `classify`: a plan, a trial on a few rows, or the whole work.

For this folder alone:

- `_census`: The census of a release: class counts, purity and completeness of its rows, in bins where these are asked
  for.
- `_census_rows`: Classified rows for the census: a sample taken while files are annotated, the same for any
  number of threads.
- `_census_wish`: The questions of a specification to the census; copies do not depend on them, so the settings
  of copies lack them.
- `_class_shares`: Class shares of a catalogue that is classified: the model's, given, or estimated from the
  catalogue itself.
- `_difference`: What changed from one release to the next: row by row in each file, then in the release as a whole.
- `_examples`: Why an object has its class: the parts of its probability, and examples of each class for a report.
- `_jobs`: The jobs of a classification: which files are to be done, by their hashes, and the room that they need.
- `_map_sums`: Maps of the sky from annotated rows: rows are read, added up by HEALPix pixel, and the maps are
  written.
- `_object_survey`: The objects and the sky counts that a classification's report shows, gathered while rows are
  classified.
- `_output_columns`: The columns that `output.columns = "full"` adds, in their order, and those that a slim copy
  keeps.
- `_plan`: What a classification would do, found out before any work starts and without writing anything.
- `_publishing`: Publication: counts and census of a release, its report, then its final names, all or none.
- `_repeats`: Objects that two files of a release have: equal files, and identifiers that occur in both.
- `_selections`: Columns that select objects: the bins of their thresholds, and the thresholds for a stated purity or
  completeness.
- `_tally`: Counts of an annotated catalogue: classes with errors, flags, shares of missing features.
- `_tasks`: The inputs and results of the tasks of a classification: files to annotate, their records, the
  publication.
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
