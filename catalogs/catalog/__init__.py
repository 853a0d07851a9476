"""What a catalogue is, whatever its format: columns, partitions, batches, and new columns.

- `batching`: Batches of exactly so many rows, whatever the pieces that a file gives.
- `catalog`: A catalogue: an ordered list of partitions, and what is known of its columns.
- `checksums`: Checksums that files state of their bytes: verified before a catalogue is read, and what
  happens if one is wrong.
- `computing`: From the batches of a partition to their new columns: an ordered pipeline that all writers
  share.
- `earlier_columns`: Columns that an earlier annotation made: known by its provenance, replaced by the next
  one with such names.
- `elements`: The elements of vector columns, as columns of their own: SDSS keeps the magnitudes of five
  bands in one.
- `kept_columns`: Which of the old columns an annotated copy has: all, all but our own from before, or a
  slim few.
- `new_columns`: The columns that an annotated catalogue gains: names, types, UCDs, meanings, and their
  provenance.
- `same_units`: Whether files can be read as one catalogue: a number must mean the same in each of them.
"""

__all__ = [
    "batching",
    "catalog",
    "checksums",
    "computing",
    "earlier_columns",
    "elements",
    "kept_columns",
    "new_columns",
    "same_units",
]
