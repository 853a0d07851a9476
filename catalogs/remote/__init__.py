"""Files at URLs: listed, read in pieces and fetched."""
