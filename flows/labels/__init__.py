"""Which row has which class: columns, tables, votes, annotators and conflicts.

- `annotators`: Who labelled each row, by the column that names the annotators; those with few labels are treated as
  one.
- `classes`: The classes of a training whose specification lists none, in a pass over the labels alone.
- `conflicts`: Objects of which several labelled rows are of different classes, found by hashes of their
  names.
- `reader`: From a column of labels to class indices: -1 where a row has no label, or one that no class
  lists.
- `reviews`: The answers of reviews, by object: several people may have answered, and a drawn list has weights.
- `source`: Where a row's label comes from: a column, a separate table joined by identifier or position, or
  a review's answers.
- `votes`: Votes from a catalogue's columns: counts of each class, or fractions with a total.

For this folder alone:

- `_held_labels`: Labels of a table in memory, by identifier or by position.
- `_label_file`: A file of SQLite with labels: made once, then read by any number of processes, without locks.
- `_stored_labels`: Labels of a table that is too large for the memory, in a file of SQLite: by identifier, or by
  pixel of the sky.
"""

__all__ = ["annotators", "classes", "conflicts", "reader", "reviews", "source", "votes"]
