"""How many objects of each class there are, how pure and complete a selection is, with intervals that hold.

- `audit`: Shares of classes from objects that people have looked at: intervals that hold whatever the model is.
- `strata`: Strata of an audit, and how many objects are drawn of each.
"""

__all__ = ["audit", "strata"]
