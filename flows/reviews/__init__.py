"""Which objects a person should see, and the list that they fill in.

- `audit_draw`: An audit is drawn: objects by stratum, at random, for a person to classify; and the answers are read.
- `audit_estimate`: What an audit's answers say: purity, completeness and class shares of the annotated files, with
  intervals.
- `audits`: What an audit leaves: the design in `audit_design.json`, and the estimates in `audit.json`.
- `request`: What `review` and `audit` are asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `selection`: The objects that a person should see: the doubtful ones, the unlike ones, and as many as a budget
  allows.

For this folder alone:

- `_files`: A review list as files: VOTable and CSV with an empty column for the answer, HTML with links to
  sky surveys.
- `_population`: The objects of annotated files, and the population that an audit draws from.
- `_rows`: The rows of annotated catalogues that a review chooses from: classified, and without a label.
"""

__all__ = ["audit_draw", "audit_estimate", "audits", "request", "selection"]
