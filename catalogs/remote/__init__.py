"""Files at URLs: listed, read in pieces and fetched.

- `errors`: Errors in reaching a URL, translated into our own; drivers of file systems raise many kinds.
- `listing`: Which files a URL means: one, those of a folder, or those that a pattern matches.
- `object_store`: A folder in an object store that is written to: s3, and az, by fsspec's drivers.
- `remote_file`: One file that lies elsewhere: https, s3, gs, abfs, and whatever else fsspec has a driver
  for.
- `urls`: URLs as texts: what is one, what of one may be written down, and which lie below others.

For this folder alone:

- `_http`: How fsspec asks servers of the web: with time limits, for bytes as they are stored, and only from allowed
  addresses.
- `_tag`: Tags by which a server identifies the state of a file: the same tag means the same bytes.
"""

__all__ = ["errors", "listing", "object_store", "remote_file", "urls"]
