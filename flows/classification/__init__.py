"""Classification of catalogues and releases: plan, jobs, scores, and what is published."""

__all__ = [
    "census_taking",
    "execution",
    "explanation",
    "feature_space",
    "map_results",
    "release_changes",
    "request",
    "scoring",
    "sky_maps",
    "steps",
]
