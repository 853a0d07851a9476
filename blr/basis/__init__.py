"""Basis functions φ_m(x): from features X, shape (N, F), to a design matrix Φ, shape (N, M)."""
