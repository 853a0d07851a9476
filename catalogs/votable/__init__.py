"""VOTables in every serialisation: read, annotated and written."""
