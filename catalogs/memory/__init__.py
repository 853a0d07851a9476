"""Tables in memory: astropy, pandas and Arrow, annotated as what they are."""
