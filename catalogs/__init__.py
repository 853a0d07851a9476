"""Catalogues: tables in, tables out, streamed."""
