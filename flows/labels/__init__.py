"""Which row has which class: columns, tables, votes and conflicts."""
