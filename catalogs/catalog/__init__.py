"""What a catalogue is, whatever its format: columns, partitions, batches, and new columns.

- `catalog`: What a catalogue is, whatever its format: columns, partitions and batches of rows.
- `computing`: From the batches of a partition to their new columns: an ordered pipeline that all writers
  share.
- `earlier_columns`: The old columns of an annotated copy: those that are kept, and those of an earlier annotation,
  which go.
- `new_columns`: The columns that an annotated catalogue gains: names, types, UCDs, meanings, and their
  provenance.
- `same_units`: Whether files can be read as one catalogue: a number must mean the same in each of them.
"""

__all__ = ["catalog", "computing", "earlier_columns", "new_columns", "same_units"]
