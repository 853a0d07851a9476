"""Whether the Gaussian at the mode is good enough: corrections beyond it, and a verdict."""
