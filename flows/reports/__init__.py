"""Reports in words, tables and figures, for terminals, Markdown and HTML.

- `boundary`: The picture of a soft decision boundary: a classifier's probabilities over two of its
  features.
- `candidates`: The rows of the evidence table: a candidate, the parts that it is a mixture of, and the
  checks of its posteriors.
- `choice`: Why the candidate of the smallest log loss on rows that no fit saw is not the one selected, in
  one sentence.
- `data`: What a report shows: plain values, gathered by `train` and `classify`, drawn by `tables` and
  `figures`.
- `explanation`: Why an object has its class: what `blr explain` prints, as values and as a page.
- `html`: The report of a trained model: one HTML file that loads nothing from anywhere.
- `label_noise`: What a report says of wrong labels: their shares with intervals, and what the labels that
  judge then say.
- `report_table`: A table of texts, as every renderer of reports takes it.
- `shift`: What a report says of a training set and its target: how unlike they are, what was done, what it
  is worth.
- `skill`: What is said of a model's skill: whether it predicts better than the class shares alone, by how
  much, how surely.
- `tables`: The report's tables, made once and rendered three ways: HTML (the template), terminal (rich),
  Markdown.
- `terminal_table`: A table on a terminal: as wide as the terminal allows, else a list; no cell is cut.

For this folder alone:

- `_check_table`: The table of posteriors compared with the exact one: what was replaced, and the evidence
  found on the way.
- `_drawings`: The figures of a report, in both themes, drawn once: the demonstration's report shows those
  of the training's.
- `_figures`: The report's figures as PNG: reliability, errors caught by review, the soft decision boundary.
"""

__all__ = [
    "boundary",
    "candidates",
    "choice",
    "data",
    "explanation",
    "html",
    "label_noise",
    "report_table",
    "shift",
    "skill",
    "tables",
    "terminal_table",
]
