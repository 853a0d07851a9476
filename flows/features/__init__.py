"""From columns to features: units, sentinels, measurement errors, the split and drift.

- `column_mapping`: A target's columns under our names: of other names, or made of the target's own by an
  expression.
- `drift`: How far a catalogue's features are from those that the model was trained with.
- `flux_units`: Units of the fluxes of [photometry], and of their errors: what the catalogue says, or who
  states it.
- `leaks`: Columns that give the class away: the sets of columns that are tried, and the leaks among them.
- `reader`: From a catalogue's columns to the feature matrix, its mask and its errors: where `catalogs` and
  `blr` meet.
- `sentinels`: Whether the values that mean "no value" can mean it: their columns are there, and hold such
  values.
- `split`: Which rows no fit sees: by salted hash of what the specification names, so the same for every
  model.
- `table_choice`: Which table is meant of a file that holds several, as FITS files and VOTables may.
- `units`: Units of a catalogue against those of the first one of a training: converted where unambiguous,
  else refused.

For this folder alone:

- `_derived_columns`: Columns that the catalogue has not: magnitudes of [photometry], and indicators of why
  a value is missing.
"""

__all__ = [
    "column_mapping",
    "drift",
    "flux_units",
    "leaks",
    "reader",
    "sentinels",
    "split",
    "table_choice",
    "units",
]
