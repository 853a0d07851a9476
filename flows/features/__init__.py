"""From columns to features: units, sentinels, measurement errors, the split and drift.

- `columns`: A catalogue's columns under our names: the target's own, magnitudes of [photometry], and why a value is
  missing.
- `drift`: How far a catalogue's features are from those that the model was trained with.
- `leaks`: Columns that give the class away: the sets of columns that are tried, and the leaks among them.
- `reader`: From a catalogue's columns to the feature matrix, its mask and its errors: where `catalogs` and `blr`
  meet.
- `split`: Which rows no fit sees: by salted hash of what the specification names, so the same for every
  model.
- `units`: Units of a catalogue against those of the first one of a training: converted where unambiguous,
  else refused.
"""

__all__ = ["columns", "drift", "leaks", "reader", "split", "units"]
