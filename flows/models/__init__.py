"""The trained model, its ASDF file, its description, the store and promotion.

- `asdf_file`: A model as a file: ASDF with a schema, checked at load, and no code in it.
- `classifier_file`: A classifier of `blr.fit_default` as an ASDF file, for those who train from arrays.
- `comparison`: Champion and challenger side by side: what the rule says, and what a person who decides has to
  know.
- `description`: The description of a model: where it came from, how good it is, and what it was trained on.
- `description_file`: What is written to a model's `description.json`, from the metrics and the verdict that its
  model file holds.
- `history`: Who decided what about a model's name, and when: `champion.log`, a line a decision, from which one
  can be undone.
- `judged_rows`: The rows that a model was judged on, each with its loss: what champion and challenger are
  compared by.
- `known_labels`: The labels that a training read, so that a census counts the same objects of a target as they
  are labelled.
- `label_noise`: The record of wrong labels and the sentences on it in a report: shares with intervals, and log
  losses.
- `labelled_objects`: The labelled objects that a model was fitted to: what people are shown when they ask what
  an object is like.
- `listing`: The list of a store: a line a model, from the small `description.json` that lies beside each model
  file.
- `model`: A trained model: everything that prediction needs, and where it came from, as one tree for one
  file.
- `promotion`: Decide about a challenger: put it in the champion's place, reject it, or undo the last promotion.
- `request`: What `promote` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `shift`: The record of the differences between training set and target, and the sentences on it in a report.
- `skill`: A model's skill in words: whether, and by how much, it predicts better than the class shares alone.
- `store`: The model store: `<store>/<name>/<version>/` holds a model, `<store>/<name>/champion` names the
  one in use.
- `store_folder`: What lies in a model store, without opening a model: names, versions, champions, and who
  decided about them.
- `unseen_rows`: Labelled rows with the probabilities of fits that have not seen them: what counts of classes
  are calibrated by.
"""

__all__ = [
    "asdf_file",
    "classifier_file",
    "comparison",
    "description",
    "description_file",
    "history",
    "judged_rows",
    "known_labels",
    "label_noise",
    "labelled_objects",
    "listing",
    "model",
    "promotion",
    "request",
    "shift",
    "skill",
    "store",
    "store_folder",
    "unseen_rows",
]
