"""Pictures of models and catalogues: functions that draw into matplotlib's axes and return them.

They take arrays, so that a notebook can draw what a report shows; `style.new_axes` gives axes in the report's style,
and `style.svg` the figure as SVG.  Any other axes of matplotlib do as well.

- `boundary`: The decision boundary over two features: contours of probabilities, and boundaries of
  weights from the posterior.
- `catalogue`: What was found in a catalogue: class fractions with their errors, flags, and features
  against the training's.
- `completeness`: Completeness and purity of the classes: against the threshold of the probability, and
  by magnitude or place.
- `evidence`: The evidence of candidates, split into how well each fits and what its freedom costs (PRML
  3.4 and 4.137).
- `names`: Names of features that a talk can show: "B − J (mag)", never an expression; and what an axis is
  rescaled from.
- `performance`: How good probabilities are: reliability, confusion, and what a review of the least
  certain objects catches.
- `sky`: Maps of the whole sky, of counts in HEALPix pixels (Gorski et al. 2005, doi:10.1086/427976).
- `style`: How pictures look: colours that any colour vision tells apart, axes with room for their texts,
  SVG for both themes.
- `weights`: The weights: their way to the mode, and the shape of their posterior.
"""

__all__ = [
    "boundary",
    "catalogue",
    "completeness",
    "evidence",
    "names",
    "performance",
    "sky",
    "style",
    "weights",
]
