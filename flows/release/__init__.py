"""Releases: drafted, checked, signed, published, rolled back, patched; a folder each, and no other store of state.

- `check`: The checks of a release: one pass over all of its rows, beside those of its inputs and of the last release.
- `draft`: Drafts of releases: an adopted run, catalogues classified where no reader sees them, a patch of listed rows.
- `record`: The record of a release: checked, signed, published, rolled back, verified.
- `replay`: Published rows scored again by the model that they name, and rows that must not get a confident class.
- `request`: The parameters of `release draft`, `check`, `sign`, `publish`, `rollback`, `patch`, `verify` and `replay`.

For this folder alone:

- `_contract`: The contract of a release: what its files must hold, and how the checks say what they found.
- `_differences`: Differences from the last release: objects matched by identifier, values, classes, flags and
  positions, by field.
- `_metadata`: What a release's files, headers and summaries say, compared with what its rows are.
- `_report`: What goes with a release: the page that is read before signing, README, column table, citation and
  provenance.
- `_truth`: Objects whose class is known, given at check time: purity, completeness and calibration of a release.
"""

__all__ = ["check", "draft", "record", "replay", "request"]
