"""The trained model, its ASDF file, its description, the store and promotion.

- `asdf_file`: The ASDF file of a model: written with its digest, read without opening anything that it names.
- `comparison`: Champion and challenger side by side: what the rule says, and what a person who decides has to
  know.
- `description`: The description of a model: where it came from, how good it is, and what it was trained on.
- `description_file`: What is written to a model's `description.json`, from the metrics and the verdict that its
  model file holds.
- `label_noise`: The record of wrong labels and the sentences on it in a report: shares with intervals, and log
  losses.
- `listing`: The list of a store: a line a model, from the small `description.json` that lies beside each model
  file.
- `model`: A trained model: everything that prediction needs, and where it came from, as one tree for one
  file.
- `promotion`: Decide about a challenger: put it in the champion's place, reject it, or undo the last promotion.
- `request`: What `promote` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `row_files`: The files of rows beside a model: held-out rows with their probabilities, labels, names, unseen rows.
- `shift`: The record of the differences between training set and target, and the sentences on it in a report.
- `skill`: A model's skill in words: whether, and by how much, it predicts better than the class shares alone.
- `store`: The model store: `<store>/<name>/<version>/` holds a model, `<store>/<name>/champion` names the
  one in use.
- `store_folder`: The folder of a store: names, versions, champions and the history of promotions.
"""

__all__ = [
    "asdf_file",
    "comparison",
    "description",
    "description_file",
    "label_noise",
    "listing",
    "model",
    "promotion",
    "request",
    "row_files",
    "shift",
    "skill",
    "store",
    "store_folder",
]
