"""What the values of a catalogue look like: ranges, classes, leaks, identifiers, quality.

- `columns`: What the rows of a catalogue show, in one pass of bounded memory: counts a column, and a sample
  of the rows.
- `distribution`: How the values of a column are distributed: counts in bins, the mean and the spread.
- `label_copies`: Columns that are the label in other numbers, as the complement of a vote fraction.
- `leaks`: Columns that give the class away: by themselves, or only together.
- `numbers_in_texts`: Text columns that are columns of numbers but for a few texts.
- `other_positions`: Positions that are in other columns than a right ascension and a declination of their
  own.
- `presence`: Columns that were measured mainly for some classes: their presence gives the class away, whatever their
  values.
- `quality`: The quality of a labelled catalogue: what is missing, constant, double, far out, or known to
  give the class away.
- `split`: Rows held out of every fit, by salted hash of what names an object: the same rows for every
  model, on every machine.
- `subjects`: What a column is about, by its UCD, unit and name: a flux, an error, the distance, dust, the
  observation.
- `suspicions`: What the numbers of a catalogue look like: values that stand for none, identifiers,
  observing bookkeeping.

For this folder alone:

- `_information_gain`: How much of a class a column tells: the share of the class's entropy that it removes,
  on rows not looked at.
"""

__all__ = [
    "columns",
    "distribution",
    "label_copies",
    "leaks",
    "numbers_in_texts",
    "other_positions",
    "presence",
    "quality",
    "split",
    "subjects",
    "suspicions",
]
