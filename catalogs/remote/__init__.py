"""Files at URLs: listed, read in pieces and fetched.

- `listing`: Which files a URL means: one, those of a folder, or those that a pattern matches.
- `object_store`: A folder in an object store that is written to: s3, and az, by fsspec's drivers.
- `remote_file`: One file that lies elsewhere: https, s3, gs, abfs, and whatever else fsspec has a driver
  for.
- `urls`: URLs of files: their schemes, their secrets, the state of what they name (ETag), and errors of their
  servers.

For this folder alone:

- `_http`: How fsspec asks servers of the web: with time limits, for bytes as they are stored, and only from allowed
  addresses.
"""

__all__ = ["listing", "object_store", "remote_file", "urls"]
