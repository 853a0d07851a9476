"""What the user named: found, fetched, opened, cut into pieces for workers, and checked for still being written."""
