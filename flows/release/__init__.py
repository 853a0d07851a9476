"""Releases: drafted, checked, signed, published, rolled back, patched; a folder each, and no other store of state.

- `check`: The checks of a release: one pass over all of its rows, beside those of its inputs and of the last release.
- `draft`: Drafts of releases: a finished run that is adopted, or catalogues that are classified where no reader sees
  them.
- `patch`: Patches: the rows that a run changes in the latest release, as a small table that is a release of its own.
- `record`: The record of a release: drafted, checked, signed, published, rolled back.
- `replay`: Published rows scored again by the model that they name, and rows that must not get a confident class.
- `request`: The parameters of `release draft`, `check`, `sign`, `publish`, `rollback`, `patch`, `verify` and `replay`.

For this folder alone:

- `_contract`: The contract of a release: what its files must hold, and how the checks say what they found.
- `_differences`: Differences from the last release: objects matched by identifier, values, classes, flags and
  positions, by field.
- `_metadata`: What a release's files, headers and summaries say, compared with what its rows are.
- `_report`: What goes with a release: the page that is read before signing, README, column table, citation and
  provenance.
- `_rows`: The rows of a release's file: what must hold in each of them, and what is counted of them.
- `_truth`: Objects whose class is known, given at check time: purity, completeness and calibration of a release.
"""

__all__ = ["check", "draft", "patch", "record", "replay", "request"]
