"""Text tables: CSV, ECSV, and tables with columns by blanks or by places."""
