"""The trained model, its ASDF file, the store, promotion and the card.

- `asdf_file`: A model as a file: ASDF with a schema, checked at load, and no code in it.
- `card`: The model card: what a model is, how good it is, and what it is not for; Markdown, beside the
  model file.
- `description`: The description of a model: where it came from, how good it is, and what it was trained on.
- `judged_rows`: The rows that a model was judged on, each with its loss: what champion and challenger are
  compared by.
- `labelled_objects`: The labelled objects that a model was fitted to: what people are shown when they ask what
  an object is like.
- `model`: A trained model: everything that prediction needs, and where it came from, as one tree for one
  file.
- `promotion`: Put a challenger in the champion's place: by rule, or because a person says so.
- `request`: What `promote` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `store`: The model store: `<store>/<name>/<version>/` holds a model, `<store>/<name>/champion` names the
  one in use.
- `unseen_rows`: Labelled rows with the probabilities of fits that have not seen them: what counts of classes
  are calibrated by.

For this folder alone:

- `_asdf_limits`: What an ASDF file claims to hold, against what a file of its size can: before memory is
  taken for it.
- `_earlier_versions`: Values for the keys that model files of earlier versions lack.
"""

__all__ = [
    "asdf_file",
    "card",
    "description",
    "judged_rows",
    "labelled_objects",
    "model",
    "promotion",
    "request",
    "store",
    "unseen_rows",
]
