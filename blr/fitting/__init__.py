"""The search for the mode: Newton, stochastic gradients, and the reasons why a fit may have none."""
