"""The specification, a TOML file: a module for each of its tables, and the reading of the file."""
