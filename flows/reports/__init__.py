"""Reports in words, tables and figures, for terminals, Markdown and HTML.

- `answers`: The answers at the beginning of a report: whether to use the model, and the four questions behind that.
- `catalogue_page`: The report of a classification: one HTML file beside the annotated catalogues that loads nothing
  from anywhere.
- `census`: The tables of a census in a report: counts with intervals and their basis, purity and completeness.
- `comparison_tables`: Champion and challenger in tables: for the page on which a person decides, and for a
  terminal.
- `data`: What a report shows, as it is stored: numbers, tables and the data of pictures.
- `explanation`: Why an object has its class: what `blr explain` prints, as values and as a page.
- `html`: Reports of trainings and classifications: one HTML file each that loads nothing from anywhere.
- `report_table`: Tables of a report: their columns and rows, and how a terminal shows them.
- `tables`: The tables of a training's report: candidates, classes, features and statistics; and the model's card of
  them.
"""

__all__ = [
    "answers",
    "catalogue_page",
    "census",
    "comparison_tables",
    "data",
    "explanation",
    "html",
    "report_table",
    "tables",
]
