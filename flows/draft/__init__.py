"""`blr inspect` and `blr init`: a first specification from a file."""
