"""The command line `blr`: options and one module for each group of commands."""
