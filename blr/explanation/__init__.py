"""Why a row has its class: what each feature contributes, and which labelled rows are like it.

- `contributions`: What each feature of a row contributes to the logit of its class against the runner-up, with the
  uncertainty that the weights leave.
- `novelty`: Which labelled rows are like a row, and whether none is.
"""

__all__ = ["contributions", "novelty"]
