"""Which row has which class: columns, tables, votes, annotators and conflicts."""
