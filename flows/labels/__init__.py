"""Which row has which class: columns, tables, votes, annotators and conflicts.

- `classes`: The class of each row: labels as they are found, and labels that contradict each other.
- `reader`: From columns of labels to classes: class indices, votes and annotators.
- `reviews`: The answers of reviews, by object: several people may have answered, and a drawn list has weights.
- `source`: Where a row's label comes from: a column, a separate table joined by identifier or position, or
  a review's answers.

For this folder alone:

- `_stored_labels`: Labels of a table of its own: held in memory, or of a large table in a file of SQLite.
"""

__all__ = ["classes", "reader", "reviews", "source"]
