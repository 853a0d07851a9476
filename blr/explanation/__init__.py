"""Why a row has its class: what each feature contributes, and which labelled rows are like it.

- `contributions`: What each feature of a row contributes to the logit of its class against the runner-up, with the
  uncertainty that the weights leave.
- `neighbours`: The labelled rows that are nearest to a row, which may have missing features.
- `novelty`: How far a row is from all labelled rows.
"""

__all__ = ["contributions", "neighbours", "novelty"]
