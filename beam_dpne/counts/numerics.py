"""Small numerical functions of the estimates."""

import numpy as np

_DIGITS = 2.0**30


def solve(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Solves a symmetric system, with a ridge so small that it only prevents division by 0."""
    ridge = 1e-9 * np.trace(matrix) / len(matrix)
    return np.linalg.solve(matrix + ridge * np.eye(len(matrix)), values)


def inverse(matrix: np.ndarray) -> np.ndarray:
    """Returns the inverse of a symmetric matrix, by `solve`."""
    return solve(matrix, np.eye(len(matrix)))


def log(values: np.ndarray | float) -> np.ndarray:
    """Returns the logarithm, rounded so that processors with other last digits agree."""
    return np.rint(np.log(values) * _DIGITS) / _DIGITS


def exp(values: np.ndarray) -> np.ndarray:
    """Returns the exponential function of rounded values, see `log`."""
    return np.exp(np.rint(values * _DIGITS) / _DIGITS)
