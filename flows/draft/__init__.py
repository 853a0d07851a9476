"""`blr inspect` and `blr init`: a first specification from a file.

- `inspection`: What a file holds: a catalogue's columns with unit, UCD, range and what looks odd in them; or a model.
- `request`: What `inspect` and `init` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `specification`: A first specification from a catalogue: `blr init`.

For this folder alone:

- `_bands`: Magnitudes and fluxes by band: the colours and the tables [photometry.NAME] of a first specification.
- `_classes`: The classes of a first specification: every label of five rows or more, and how they could be
  grouped.
- `_columns`: What a first specification makes of columns: features of all, but for reasons of physics or bookkeeping.
- `_exclusions`: Columns that are no features, by their names, units and values.
- `_page`: The page that `blr init` writes: a TOML file with comments that say what was found.
"""

__all__ = ["inspection", "request", "specification"]
