"""What headers say: FITS cards, astropy's YAML, VOTable fields, pandas' JSON."""
