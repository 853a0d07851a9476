"""Classification of catalogues and releases: plan, jobs, scores, and what is published.

- `census_taking`: A new census of an output folder, and the census of a table in memory.
- `execution`: A classification is carried out: here or on workers, file by file, until what is whole is published.
- `explanation`: Why one object of a catalogue has its class: its row is found, scored, and taken apart.
- `feature_space`: The whitened features of a model, as a space with points for annotated rows and labelled objects.
- `map_results`: The results of `map`: fractions of a class over the sky, in all and by bins of what they may depend
  on.
- `release_changes`: What a challenger would change in the last release: both models classify a sample, and nothing is
  written.
- `request`: The parameters of `census`, `classify`, `reprocess`, `map` and `explain`.
- `scoring`: The settings of a classification, and the scores of a batch of rows under them: the new columns of a
  copy.
- `sky_maps`: Maps over the sky of the fraction of a class, or of the contamination or completeness of a selection.
- `steps`: The steps of `classify` and `reprocess`, with or without Prefect: a plan, a trial, or the whole work.

For this folder alone:

- `_census`: The census of a release: the rows that it rests on, the questions to it, and its counts, by bins where
  asked for.
- `_class_shares`: Class shares of a catalogue that is classified: the model's, given, or estimated from the catalogue
  itself.
- `_difference`: What changed from one release to the next: row by row in each file, then in the release as a whole.
- `_examples`: Why an object has its class: the parts of its probability, and examples of each class for a report.
- `_plan`: What a classification would do: a job for each file, found out before any work starts and without writing
  anything.
- `_publishing`: Publication: counts and census of a release, its report, then its final names, all or none.
- `_repeats`: Objects that two files of a release have: equal files, and identifiers that occur in both.
- `_selections`: Columns that select objects: the bins of their thresholds, and the thresholds for a stated purity or
  completeness.
- `_tally`: Counts of an annotated catalogue, gathered while rows are classified: classes, flags, the sky, doubtful
  objects.
"""

__all__ = [
    "census_taking",
    "execution",
    "explanation",
    "feature_space",
    "map_results",
    "release_changes",
    "request",
    "scoring",
    "sky_maps",
    "steps",
]
