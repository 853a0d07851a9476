"""The language of features: expressions of columns, with units."""
