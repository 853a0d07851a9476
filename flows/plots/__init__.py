"""Pictures of models and catalogues: functions that draw into axes and return them.

They take arrays, so that a notebook can draw what a report shows; `axes.new_axes` gives axes in the report's style,
and `axes.svg` the figure as SVG.  Axes of matplotlib do as well.
"""
