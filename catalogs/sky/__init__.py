"""Positions, neighbours and photometry of objects on the sky.

- `neighbours`: How many objects have another one within an arcsecond, in bounded memory, however far apart
  the rows are.
- `photometry`: Photometry: magnitudes from fluxes, their errors, extinction, and what a missing value
  means.
- `positions`: Positions on the sky in degrees, from columns in degrees, radians, sexagesimal text, or hours
  beside degrees.
- `survey_links`: Pages of sky surveys that show a position.
"""

__all__ = ["neighbours", "photometry", "positions", "survey_links"]
