"""Which objects a person should see, and the list that they fill in.

- `request`: What `review` is asked for.  Annotations are evaluated here: see `flows.runs.parameters`.
- `selection`: Choose objects of annotated catalogues for a human look: the least certain of those flagged,
  and a drawn sample.

For this folder alone:

- `_files`: A review list as files: VOTable and CSV with an empty column for the answer, HTML with links to
  sky surveys.
"""

__all__ = ["request", "selection"]
