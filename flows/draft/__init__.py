"""`blr inspect` and `blr init`: a first specification from a file.

- `in_memory`: The specification of a table in memory: what a user names of it, in the words of a specification.
- `inspected`: What `blr inspect` and `blr init` return: a catalogue and its columns in numbers, a first specification.
- `inspection`: What a file holds: a catalogue's columns with unit, UCD, range and what looks odd in them;
  or a model.
- `request`: What `inspect` and `init` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `specification`: A first specification from a catalogue: `blr init`.

For this folder alone:

- `_bands`: Magnitudes and fluxes by band, and the colours of a first specification.
- `_classes`: The classes of a first specification: every label of five rows or more, and how they could be
  grouped.
- `_columns`: What a first specification makes of columns: features of all, but for reasons of physics or
  bookkeeping.
- `_exclusions`: Columns that are no features, by their names, units and values.
- `_expressions`: Features as expressions of a catalogue's columns: colours, line ratios, and whether a value is
  there.
- `_fluxes`: The tables [photometry.NAME] of a first specification: magnitudes of columns that say they are
  fluxes.
- `_page`: The page that `blr init` writes: a TOML file with comments that say what was found.
- `_suspects`: What a suspected column is worth: the log loss of a quick linear fit with it and without it.
"""

__all__ = ["in_memory", "inspected", "inspection", "request", "specification"]
