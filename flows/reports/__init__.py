"""Reports in words, tables and figures, for terminals, Markdown and HTML.

- `answers`: The answers at the beginning of a report: what a reader asks first, with reasons and advice.
- `boundary`: The picture of a soft decision boundary: a classifier's probabilities over two of its
  features.
- `candidates`: The rows of the evidence table: a candidate, the parts that it is a mixture of, and the
  checks of its posteriors.
- `catalogue_answers`: The answers that the report of a classification opens with.
- `catalogue_page`: The report of a classification: one HTML file beside the annotated catalogues that loads
  nothing from anywhere.
- `census`: The tables of a census in a report: counts with intervals and their basis, purity and completeness.
- `choice`: Why the candidate of the smallest log loss on rows that no fit saw is not the one selected, in
  one sentence.
- `class_words`: How a sentence names a class: "class 5", where the name alone would be read as a number.
- `data`: The content of reports as plain values, which `train` and `classify` gather.
- `explanation`: Why an object has its class: what `blr explain` prints, as values and as a page.
- `html`: Reports of trainings and classifications: one HTML file each that loads nothing from anywhere.
- `label_noise`: The record of wrong labels and the sentences on it in a report: shares with intervals, and log
  losses.
- `picture_data`: Data beside a model from which its report can be drawn again: small arrays, and objects to
  look at.
- `report_table`: A table of texts, the form that every renderer of reports accepts.
- `shift`: The record of the differences between training set and target, and the sentences on it in a report.
- `skill`: A model's skill in words: whether, and by how much, it predicts better than the class shares alone.
- `tables`: The report's tables, made once and rendered three ways: HTML (the template), terminal (rich),
  Markdown.
- `terminal_table`: A table on a terminal: as wide as the terminal allows, else a list; no cell is cut.

For this folder alone:

- `_check_table`: The table of posteriors compared with the exact one: what was replaced, and the evidence
  found on the way.
- `_findings`: Findings that reports of trainings and of classifications share: on skill, on the
  approximation, on odd objects.
- `_per_class`: Completeness and purity of each class, with intervals, from the objects that judge a model.
- `_pictures`: The pictures of a report: first the two that matter most, then those that help to choose
  thresholds and reviews.
- `_templates`: The templates of pages: every text that they are given is escaped.
"""

__all__ = [
    "answers",
    "boundary",
    "candidates",
    "catalogue_answers",
    "catalogue_page",
    "census",
    "choice",
    "class_words",
    "data",
    "explanation",
    "html",
    "label_noise",
    "picture_data",
    "report_table",
    "shift",
    "skill",
    "tables",
    "terminal_table",
]
