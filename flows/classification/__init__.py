"""Classification of catalogues and releases: plan, jobs, scores, and what is published."""
