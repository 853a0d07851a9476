"""The search for the mode: Newton, stochastic gradients, and the reasons why a fit may have none.

- `collinearity`: Collinear columns: those of the design matrix that are linear combinations of the others,
  by name of index.
- `newton`: Newton's method (IRLS) to the mode of the log posterior (PRML 4.3.3), with a Gaussian prior of
  any mean.
- `problem`: The problem of a fit: its rows or its streams of rows, the objective, its gradient and its Hessian.
- `ranks`: Quantiles, and areas under ROC curves, of values that come in parts, which are never held together.
- `separation`: Separation: whether a linear function of the columns tells the classes apart without error.
- `sgd`: Stochastic gradient ascent to the mode, for streams that cannot be read twice (PRML 3.1.3, 4.3.2).
- `subsample`: A starting point for many rows: the mode of every n-th row, then quasi-Newton steps, which need no
  Hessian.
"""

__all__ = ["collinearity", "newton", "problem", "ranks", "separation", "sgd", "subsample"]
