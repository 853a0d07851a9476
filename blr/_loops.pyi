from numpy import float32, float64
from numpy.typing import NDArray

instructions: str

def add_squares(
    Phi: NDArray[float64] | NDArray[float32],
    U: NDArray[float64] | NDArray[float32],
    packed: NDArray[float64],
    n_outputs: int,
    single: bool,
    /,
) -> None: ...
def logistic_integral(
    m: NDArray[float64],
    v: NDArray[float64],
    z: NDArray[float64] | None,
    w: NDArray[float64] | None,
    probability: NDArray[float64],
    entropy: NDArray[float64] | None,
    /,
) -> None: ...
def logistic_rows(
    a: NDArray[float64] | NDArray[float32],
    t: NDArray[float64] | NDArray[float32],
    value: NDArray[float64] | NDArray[float32],
    residual: NDArray[float64] | NDArray[float32] | None,
    curvature: NDArray[float64] | NDArray[float32] | None,
    single: bool,
    /,
) -> None: ...
def logistic_sums(
    Phi: NDArray[float64],
    w: NDArray[float64],
    t: NDArray[float64],
    weight: NDArray[float64] | None,
    gradient: NDArray[float64],
    hessian: NDArray[float64] | None,
    /,
) -> float: ...
def softmax_moments(
    m: NDArray[float64],
    B: NDArray[float64],
    z: NDArray[float64] | NDArray[float32],
    w: NDArray[float64] | NDArray[float32],
    moments: NDArray[float64],
    log_sum: NDArray[float64],
    single: bool,
    /,
) -> None: ...
def softmax_series(
    mean: NDArray[float64],
    covariance: NDArray[float64],
    probability: NDArray[float64],
    entropy: NDArray[float64],
    others: NDArray[float64],
    spread: NDArray[float64],
    /,
) -> None: ...
def softmax_nodes(
    m: NDArray[float64],
    B: NDArray[float64],
    z: NDArray[float64] | NDArray[float32],
    w: NDArray[float64] | NDArray[float32],
    log_sum: NDArray[float64],
    products: NDArray[float64],
    single: bool,
    /,
) -> None: ...
def softmax_rows(
    a: NDArray[float64] | NDArray[float32],
    t: NDArray[float64] | NDArray[float32],
    value: NDArray[float64] | NDArray[float32],
    single: bool,
    /,
) -> None: ...
def weighted_grams(Phi: NDArray[float64], r: NDArray[float64], out: NDArray[float64], /) -> None: ...
