"""Files on this machine: written whole or not at all, compressed, found by pattern.

- `array_file`: NumPy arrays as .npy files, apart from `atomic`: who writes no arrays need not import NumPy,
  which is slow.
- `atomic`: How every file reaches its final name: written under another, flushed to the disk, renamed.
- `reading`: Files that are read: found in folders, the same while they are read, decompressed where they are packed.
"""

__all__ = ["array_file", "atomic", "reading"]
