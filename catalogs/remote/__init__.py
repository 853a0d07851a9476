"""Files at URLs: listed, read in pieces and fetched.

- `errors`: What goes wrong on the way to a URL, said in our words; drivers of file systems raise whatever
  they like.
- `listing`: Which files a URL means: one, those of a folder, or those that a pattern matches.
- `object_store`: A folder in an object store that is written to: s3, and az, by fsspec's drivers.
- `remote_file`: One file that lies elsewhere: https, s3, gs, abfs, and whatever else fsspec has a driver
  for.
- `urls`: URLs as texts: what is one, what of one may be written down, and which lie below others.

For this folder alone:

- `_http`: How fsspec asks servers of the web: patient, but not for ever; for bytes as they are stored;
  where it may ask.
- `_tag`: A server's word for the state of a file: the same word, the same bytes.
"""

__all__ = ["errors", "listing", "object_store", "remote_file", "urls"]
