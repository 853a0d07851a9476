"""What the values of a catalogue look like: ranges, classes, leaks, identifiers, quality.

- `columns`: What the values of columns look like: ranges, missing values, sentinels, numbers in texts, classes.
- `leaks`: Columns that give the label away: copies of it, columns made from it, and what they gain.
- `quality`: What is suspicious in a catalogue: repeated objects, wrong positions, constant columns, units that do not
  fit.
- `split`: Rows held out of every fit, by salted hash of what names an object: the same rows for every
  model, on every machine.
"""

__all__ = ["columns", "leaks", "quality", "split"]
