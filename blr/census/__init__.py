"""How many objects of each class there are, how pure and complete a selection is, with intervals that hold.

- `prediction_sets`: Prediction sets: the classes that an object's probabilities do not exclude; the true one is kept
  at a stated rate.
"""

__all__ = ["prediction_sets"]
