"""`blr inspect` and `blr init`: a first specification from a file.

- `in_memory`: The specification of a table in memory: what a user names of it, in the words of a specification.
- `inspected`: What `blr inspect` and `blr init` return: a catalogue and its columns in numbers, a first specification.
- `inspection`: What a file holds: a catalogue's columns with unit, UCD, range and what looks odd in them;
  or a model.
- `request`: What `inspect` and `init` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `specification`: A first specification for a labelled catalogue: what `blr init` writes.

For this folder alone:

- `_bands`: Magnitudes and fluxes by band, and the colours of a first specification.
- `_classes`: The classes of a first specification: every label of five rows or more, and how they could be
  grouped.
- `_columns`: What a first specification makes of columns: features of all, but for reasons of physics or
  bookkeeping.
- `_copies`: Columns that order the rows as another one does: they say nothing that it does not say.
- `_exclusions`: Why a column is no feature of a first specification, and why one that is deserves a look.
- `_expressions`: Expressions of a first specification: the columns that they use, and their values in the
  labelled rows.
- `_fluxes`: The tables [photometry.NAME] of a first specification: magnitudes of columns that say they are
  fluxes.
- `_lines`: Ratios of the fluxes of emission lines: what ionises the gas.
- `_names`: The meaning of a column by its name, where its values agree: an error, a flag, a score, the observation.
- `_offered`: Lines for columns that are left out and tell the class: texts of few values, flags and codes, others'
  answers.
- `_page`: The text of a first specification: TOML, with what was seen in comments.
- `_presence_features`: Features that say whether a value is there: in many catalogues, which objects lack one tells
  their class.
- `_summary`: What a first specification leaves out, in a few lines at its beginning.
- `_suspects`: What a suspected column is worth: the log loss of a quick linear fit with it and without it.
- `_toml`: Texts, lists, tables and comments of a first specification, as TOML has them.
"""

__all__ = ["in_memory", "inspected", "inspection", "request", "specification"]
