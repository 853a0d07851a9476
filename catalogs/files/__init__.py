"""Files on this machine: written whole or not at all, compressed, found by pattern.

- `array_file`: NumPy arrays as .npy files, apart from `atomic`: who writes no arrays need not import NumPy,
  which is slow.
- `atomic`: How every file reaches its final name: written under another, flushed to the disk, renamed.
- `compressed`: Files that may be compressed as a whole: gzip or bzip2, told by their first bytes.
- `folders`: Catalogues of several files: a folder, or a pattern such as `release/*.parquet`.
- `stamp`: Whether a file is still the one that was opened: its size, the time of its last change, its place
  on the disk.
"""

__all__ = ["array_file", "atomic", "compressed", "folders", "stamp"]
