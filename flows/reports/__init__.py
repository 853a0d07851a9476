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
- `choice`: Why the candidate of the smallest log loss on rows that no fit saw is not the one selected, in
  one sentence.
- `class_words`: How a sentence names a class: "class 5", where the name alone would be read as a number.
- `comparison_tables`: Champion and challenger in tables: for the page on which a person decides, and for a
  terminal.
- `data`: What reports show: descriptions of models and counts of catalogues as they are stored, and what lies
  beside.
- `explanation`: Why an object has its class: what `blr explain` prints, as values and as a page.
- `grouping`: Classes that the features cannot tell apart: the sentence, the table, and the lines that join them.
- `html`: Reports of trainings and classifications: one HTML file each that loads nothing from anywhere.
- `picture_data`: Data beside a model from which its report can be drawn again: small arrays, and objects to
  look at.
- `report_table`: A table of texts, the form that every renderer of reports accepts.
- `tables`: The report's tables, made once and rendered three ways: HTML (the template), terminal (rich),
  Markdown.
- `terminal_table`: A table on a terminal: as wide as the terminal allows, else a list; no cell is cut.

For this folder alone:

- `_findings`: The answers that reports of trainings and of classifications share, and what they are made of.
- `_per_class`: Completeness and purity of each class, with intervals, from the objects that judge a model.
- `_pictures`: The pictures of a report: first the two that matter most, then those that help to choose
  thresholds and reviews.
- `_statistics`: Tables for statisticians: posteriors compared with the exact one, and the words that only they
  use.
- `_templates`: The templates of pages: every text that they are given is escaped.
"""

__all__ = [
    "answers",
    "boundary",
    "card",
    "catalogue_answers",
    "catalogue_page",
    "census",
    "choice",
    "class_words",
    "comparison_tables",
    "data",
    "explanation",
    "grouping",
    "html",
    "picture_data",
    "report_table",
    "tables",
    "terminal_table",
]
