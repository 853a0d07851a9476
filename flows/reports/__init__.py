"""Reports in words, tables and figures, for terminals, Markdown and HTML."""
