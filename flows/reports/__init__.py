"""Reports in words, tables and figures, for terminals, Markdown and HTML.

- `answers`: What a report opens with: the answers to what a reader asks first, with reasons and what to do.
- `boundary`: The picture of a soft decision boundary: a classifier's probabilities over two of its
  features.
- `candidates`: The rows of the evidence table: a candidate, the parts that it is a mixture of, and the
  checks of its posteriors.
- `catalogue_answers`: The answers that the report of a classification opens with.
- `catalogue_page`: The report of a classification: one HTML file beside the annotated catalogues that loads
  nothing from anywhere.
- `census`: What a report says of a census: counts with intervals and what they rest on, and what
  selections cost.
- `choice`: Why the candidate of the smallest log loss on rows that no fit saw is not the one selected, in
  one sentence.
- `class_words`: How a sentence names a class: "class 5", where the name alone would be read as a number.
- `data`: What a report shows: plain values, gathered by `train` and `classify`, drawn by `tables` and
  `figures`.
- `explanation`: Why an object has its class: what `blr explain` prints, as values and as a page.
- `html`: Reports of trainings and classifications: one HTML file each that loads nothing from anywhere.
- `label_noise`: What a report says of wrong labels: their shares with intervals, and what the labels that
  judge then say.
- `picture_data`: What a training stores beside the model so that its report can be drawn again: small arrays,
  and objects to look at.
- `report_table`: A table of texts, as every renderer of reports takes it.
- `shift`: What a report says of a training set and its target: how unlike they are, what was done, what it
  is worth.
- `skill`: What is said of a model's skill: whether it predicts better than the class shares alone, by how
  much, how surely.
- `tables`: The report's tables, made once and rendered three ways: HTML (the template), terminal (rich),
  Markdown.
- `terminal_table`: A table on a terminal: as wide as the terminal allows, else a list; no cell is cut.

For this folder alone:

- `_catalogue_pictures`: The pictures of a classified catalogue; matplotlib is imported with this module.
- `_check_table`: The table of posteriors compared with the exact one: what was replaced, and the evidence
  found on the way.
- `_drawings`: The pictures of a report as SVG, each drawn once: the demonstration's report shows those of the
  training's.
- `_findings`: Findings that reports of trainings and of classifications share: on skill, on the
  approximation, on odd objects.
- `_per_class`: Completeness and purity of each class, with intervals, from the objects that judge a model.
- `_picture`: A picture of a report: an image, and the words that belong to it.
- `_templates`: The templates of pages: every text that they are given is escaped.
- `_training_pictures`: The pictures of a model, in the order of their worth; matplotlib is imported with this
  module.
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
