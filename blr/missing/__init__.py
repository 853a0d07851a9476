"""Features missing at random, and measurement errors: what to integrate them out with.

Whatever depends on which features are missing is done once a pattern, for all of its rows.
"""

from __future__ import annotations

__all__ = [
    "FeatureMoments",
    "Nodes",
    "error_nodes",
    "missing_patterns",
    "node_blocks",
    "normal_nodes",
    "present_errors",
    "present_values",
]

from blr.missing.moments import FeatureMoments
from blr.missing.nodes import error_nodes, normal_nodes
from blr.missing.patterns import Nodes, missing_patterns, node_blocks, present_errors, present_values
