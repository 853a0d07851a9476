"""Files at URLs: listed, read in pieces and fetched.

- `listing`: The files of a folder or a pattern at a URL.
- `remote_file`: Files at URLs: read in pieces, fetched, and kept in an object store.
- `urls`: URLs of files: their schemes, their secrets, the state of what they name (ETag), and errors of their
  servers.
"""

__all__ = ["listing", "remote_file", "urls"]
