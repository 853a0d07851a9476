"""The specification, a TOML file: a module for each of its tables, and the reading of the file.

- `catalog`: The table [catalog]: the labelled catalogue, and the values that mark a missing measurement.
- `label`: The table [label]: what the classes are, and where an object's class is written.
- `label_noise`: The key label.noise: shares of wrong labels by class, as a matrix, or to be estimated.
- `photometry`: The tables [photometry.NAME]: magnitudes from fluxes, or corrected for extinction, for use in
  expressions.
- `ranges`: Ranges of numbers in a specification: '0..5' is 0 <= x < 5, '..0' is all below 0, '5..' all from 5
  on.
- `specification`: The specification of a model, in one TOML file; pydantic models define the tables and keys of
  the file.
- `target`: The table [target]: how the catalogue to classify differs from the labelled one.
- `toml_file`: Reading a specification from its TOML file, with errors that name the file, the key and a remedy.

For this folder alone:

- `_basis`: The tables of the bases that a candidate may have; the keys are the keywords of `fit` of that basis
  in `blr`.
- `_census`: The table [census]: the bins in which the census of a classification counts objects.
- `_fields`: The base class of the tables of a specification, and the types of values that several tables have.
- `_output`: The table [output]: what annotated catalogues look like.
- `_run`: The table [run]: where the work is done.
- `_shift`: The table [shift]: what is done where the training set is unlike the catalogue to classify.
"""

__all__ = [
    "catalog",
    "label",
    "label_noise",
    "photometry",
    "ranges",
    "specification",
    "target",
    "toml_file",
]
