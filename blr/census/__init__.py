"""How many objects of each class there are, how pure and complete a selection is, with intervals that hold."""
