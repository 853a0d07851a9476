"""Pictures of models and catalogues: functions that draw into axes and return them.

They take arrays, so that a notebook can draw what a report shows; `axes.new_axes` gives axes in the report's style,
and `axes.svg` the figure as SVG.  Axes of matplotlib do as well.

- `axes`: Axes of a picture in SVG: lines, points, bars, bands and texts at places that data give.
- `boundary`: The decision boundary over two features: probabilities as shades and contours, and boundaries
  of single draws.
- `catalogue`: What was found in a catalogue: class shares with intervals, flags, features against the training's,
  maps of the sky.
- `performance`: How good a model is: reliability, confusion, completeness and purity, and the errors that a
  review catches.
- `style`: How pictures look: colours that any colour vision tells apart, names of features, and ticks at round
  numbers.
"""

__all__ = ["axes", "boundary", "catalogue", "performance", "style"]
