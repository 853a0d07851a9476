"""Reports in words, tables and figures, for terminals, Markdown and HTML.

- `answers`: The answers at the beginning of a report: whether to use the model, and the four questions behind
  that.
- `boundary`: The picture of a soft decision boundary: a classifier's probabilities over two of its
  features.
- `card`: The model card: what a model is, how good it is, and what it is not for; Markdown, beside the
  model file.
- `catalogue_answers`: The answers that the report of a classification opens with.
- `catalogue_page`: The report of a classification: one HTML file beside the annotated catalogues that loads
  nothing from anywhere.
- `census`: The tables of a census in a report: counts with intervals and their basis, purity and completeness.
- `comparison_tables`: Champion and challenger in tables: for the page on which a person decides, and for a
  terminal.
- `data`: What a report shows, as it is stored: numbers, tables and the data of pictures.
- `explanation`: Why an object has its class: what `blr explain` prints, as values and as a page.
- `grouping`: Classes that the features cannot tell apart: the sentence, the table, and the lines that join them.
- `html`: Reports of trainings and classifications: one HTML file each that loads nothing from anywhere.
- `report_table`: Tables of a report: their columns and rows, and how a terminal shows them.
- `tables`: The tables of a training's report: candidates, classes, features and statistics.

For this folder alone:

- `_findings`: What a report finds: sentences on the classes, the labels and the catalogue, the gravest first.
- `_pictures`: The pictures of a report: first the two that matter most, then those that help to choose
  thresholds and reviews.
- `_templates`: The templates of pages: every text that they are given is escaped.
"""

__all__ = [
    "answers",
    "boundary",
    "card",
    "catalogue_answers",
    "catalogue_page",
    "census",
    "comparison_tables",
    "data",
    "explanation",
    "grouping",
    "html",
    "report_table",
    "tables",
]
