"""Which objects a person should see, and the list that they fill in.

- `audit_draw`: Draw an audit: a stratified random sample of annotated catalogues, written as a list that people
  fill in.
- `audit_estimate`: Estimate counts, purity and completeness from an audit's answers, and quote the counts in the
  folder's summary.
- `audits`: What an audit leaves: the design in `audit_design.json`, and the estimates in `audit.json`.
- `request`: What `review` and `audit` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `selection`: Choose objects of annotated catalogues for a human look: a budget, or the least certain of
  those flagged.

For this folder alone:

- `_answers`: Answers of people to the objects of a list, by the object's name.
- `_audited`: Estimates of an audit: classes, bins and selections, from the answers and the design.
- `_budget`: The objects of a review's budget: drawn where labels help most, spread over the features, each with its
  weight.
- `_drawing`: A stratified random sample of annotated catalogues, in two passes and bounded memory.
- `_files`: A review list as files: VOTable and CSV with an empty column for the answer, HTML with links to
  sky surveys.
- `_objects`: The annotated catalogues of an output folder, and their columns of identifier and position.
- `_outliers`: Objects that are unlike all labelled ones: possible new types, artefacts, and errors of the
  photometry.
- `_population`: The classified rows of annotated catalogues as an audit draws from them: class, probabilities,
  and a bin.
- `_rows`: The rows of annotated catalogues that a review chooses from: classified, and without a label.
"""

__all__ = ["audit_draw", "audit_estimate", "audits", "request", "selection"]
