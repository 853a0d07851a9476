from typing import TypeAlias

from numpy import float32, float64, int32
from numpy.typing import NDArray

# Double or single precision, the same for all such arrays of a call.
_Reals: TypeAlias = NDArray[float64] | NDArray[float32]
_Doubles: TypeAlias = NDArray[float64]

instructions: str
most_outputs: int

def add_squares(Phi: _Reals, U: _Reals, packed: _Doubles, /) -> None: ...
def arcsinhs(x: _Doubles, /) -> None: ...
def city_blocks(Z: _Doubles, centres: _Doubles, distance: _Doubles, /) -> None: ...
def exponentials(x: _Doubles, /) -> None: ...
def grow_tree(
    X: NDArray[float32],
    target: _Doubles,
    weight: _Doubles,
    options: NDArray[int32],
    feature: NDArray[int32],
    threshold: NDArray[float32],
    child: NDArray[int32],
    sums: _Doubles,
    at: NDArray[int32],
    /,
) -> int: ...
def logistic_integral(
    m: _Doubles,
    v: _Doubles,
    z: _Doubles | None,
    w: _Doubles | None,
    probability: _Doubles,
    entropy: _Doubles | None,
    /,
) -> None: ...
def logistic_mixture(
    mean: _Doubles,
    sd: _Doubles,
    z: _Reals,
    w: _Reals,
    share: _Doubles,
    p: _Doubles,
    entropy: _Doubles,
    first: _Doubles,
    second: _Doubles,
    /,
) -> None: ...
def logistic_rows(
    a: _Reals, t: _Reals, value: _Reals, residual: _Reals | None, curvature: _Reals | None, /
) -> None: ...
def logistic_sums(
    Phi: _Doubles,
    w: _Doubles,
    t: _Doubles,
    weight: _Doubles | None,
    gradient: _Doubles,
    hessian: _Doubles | None,
    /,
) -> float: ...
def monomials(Z: _Doubles, out: _Doubles, /) -> None: ...
def softmax_mixture(
    m: _Doubles,
    B: _Doubles,
    z: _Reals,
    w: _Reals,
    share: _Doubles,
    p: _Doubles,
    entropy: _Doubles,
    mean: _Doubles,
    second: _Doubles,
    /,
) -> None: ...
def softmax_nodes(
    m: _Doubles, B: _Doubles, z: _Reals, w: _Reals, log_sum: _Doubles, products: _Doubles, /
) -> None: ...
def softmax_responses(
    m: _Doubles, B: _Doubles, z: _Reals, w: _Reals, p: _Doubles, entropy: _Doubles, /
) -> None: ...
def softmax_rows(a: _Reals, t: _Reals, value: _Reals, /) -> None: ...
def softmax_series(
    mean: _Doubles,
    covariance: _Doubles,
    probability: _Doubles,
    entropy: _Doubles,
    others: _Doubles,
    spread: _Doubles,
    /,
) -> None: ...
def weighted_grams(Phi: _Doubles, r: _Doubles, out: _Doubles, /) -> None: ...
