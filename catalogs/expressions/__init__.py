"""The language of features: expressions of columns, with units.

- `bins`: Bins of the values of an expression: edges between bins of as many values each, and the bins'
  names.
- `expression`: Feature expressions: a small language over a catalogue's columns, evaluated on arrays.

For this folder alone:

- `_functions`: What the operators and functions of the expression language do to arrays.
- `_parser`: From text to the tree of a feature expression.
- `_tokens`: The words of a feature expression, by a whitelist: what is no word of the language is refused
  here.
- `_tree`: The tree of a feature expression: all that can be said in the language, and nothing else.
- `_units`: The unit of an expression's values, as far as its columns' units tell.
"""

__all__ = ["bins", "expression"]
