"""From columns to features: units, sentinels, measurement errors, the split and drift."""
