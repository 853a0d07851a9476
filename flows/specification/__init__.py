"""The specification, a TOML file: a module for each of its tables, and the reading of the file.

- `catalog`: The tables `[catalog]`, `[photometry]` and `[target]`: columns, bands, ranges, and what is to be
  classified.
- `label`: The tables `[label]` and `[label.noise]`: where labels are, and how many of them are wrong.
- `specification`: What the TOML file may say: the whole specification, with the tables for census, output, run and
  shift.
- `toml_file`: Reading a specification from its TOML file, with errors that name the file, the key and a remedy.

For this folder alone:

- `_basis`: The tables of the bases that a candidate may have; the keys are the keywords of `fit` of that basis
  in `blr`.
"""

__all__ = ["catalog", "label", "specification", "toml_file"]
