"""What the TOML file may say, one table a module, and how it is read.

- `basis`: The bases that a candidate may have: one table a kind, its fields the keywords of that kind's
  `fit` in `blr`.
- `catalog`: The labelled catalogue of a specification, and its marks of no value.
- `label`: The table [label]: what the classes are, and where an object's class is written.
- `label_noise`: What a specification says of wrong labels: shares by class, a matrix, or that they are to
  be estimated.
- `photometry`: The tables [photometry.NAME]: magnitudes that are made of fluxes, or freed of extinction,
  for use in expressions.
- `ranges`: Ranges of numbers as a specification writes them: '0..5' is 0 <= x < 5, '..0' is all below 0,
  '5..' all from 5 on.
- `specification`: The specification: one TOML file says everything, and these models say what it may say.
- `target`: The catalogue to classify, where it differs from the labelled one: names, units, marks, columns
  to be made.
- `toml_file`: Read a specification from its TOML file; say what is wrong: file, key, got, expected, remedy.

For this folder alone:

- `_census`: The table [census]: what the census of a classification tells apart.
- `_fields`: What the tables of a specification share: how each is read, and the kinds of values that
  several of them hold.
- `_output`: The table [output]: what annotated catalogues look like.
- `_run`: The table [run]: where the work is done.
- `_shift`: The table [shift]: what is done where the training set is unlike the catalogue to classify.
"""

__all__ = [
    "basis",
    "catalog",
    "label",
    "label_noise",
    "photometry",
    "ranges",
    "specification",
    "target",
    "toml_file",
]
