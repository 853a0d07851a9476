"""Flows, the command line and reports: the only place where `catalogs` and `blr` meet."""
