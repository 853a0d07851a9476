"""The language of features: expressions of columns, with units.

- `expression`: An expression of columns: parsed, checked against a catalogue, evaluated on a batch; and bins of its
  values.

For this folder alone:

- `_parser`: Expressions as text: tokens, the tree that the parser makes of them, and what is said of mistakes.
- `_units`: The unit of an expression's values, as far as its columns' units tell.
"""

__all__ = ["expression"]
