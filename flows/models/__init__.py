"""The trained model, its ASDF file, its description, the store and promotion.

- `description`: The description of a model: where it came from, how good it is, and what it was trained on.
- `listing`: The list of a store: a line a model, from the small `description.json` that lies beside each model file.
- `model`: A trained model: everything that prediction needs, and where it came from; and its ASDF file, without code
  in it.
- `promotion`: Champion and challenger: what the rule says, what a person who decides has to know, and the decision.
- `request`: What `promote` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `row_files`: The files of rows beside a model: held-out rows with their probabilities, labels, names, unseen rows.
- `store`: The model store: `<store>/<name>/<version>/` holds a model, `<store>/<name>/champion` names the
  one in use.
- `store_folder`: The folder of a store: names, versions, champions and the history of promotions.
"""

__all__ = [
    "description",
    "listing",
    "model",
    "promotion",
    "request",
    "row_files",
    "store",
    "store_folder",
]
