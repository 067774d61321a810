"""Linear algebra of small matrices: products, and factorizations written out row by row."""

from typing import Any

import numpy

from benchmarks.kernels.kernel import kernel

#: A library with NumPy's names, and one of its arrays.
Library = Array = Any


def _definite(rng: numpy.random.Generator, n: int) -> Array:
    """A symmetric matrix that is positive definite."""
    a = rng.random((n, n))
    return a @ a.T + n * numpy.eye(n)


@kernel(
    lambda rng: (1.5, 1.2, rng.random((400, 450)), rng.random((400, 500)), rng.random((500, 450)))
)
def scaled_product(np: Library, alpha: float, beta: float, c: Array, a: Array, b: Array) -> Array:
    c[:] = alpha * a @ b + beta * c
    return c


@kernel(lambda rng: (rng.random((300, 350)), rng.random((350, 400)), rng.random((400, 450))))
def two_products(np: Library, a: Array, b: Array, c: Array) -> Array:
    return 1.5 * a @ b @ c


@kernel(lambda rng: tuple(rng.random((300, 300)) for _ in range(4)))
def three_products(np: Library, a: Array, b: Array, c: Array, d: Array) -> Array:
    return (a @ b) @ (c @ d)


@kernel(lambda rng: (rng.random((1000, 1200)), rng.random(1200)))
def normal_product(np: Library, a: Array, x: Array) -> Array:
    return (a @ x) @ a


@kernel(lambda rng: (rng.random((1000, 1100)), rng.random(1100), rng.random(1000)))
def both_products(np: Library, a: Array, p: Array, r: Array) -> Array:
    return r @ a, a @ p


@kernel(lambda rng: (*(rng.random(1000) for _ in range(4)), rng.random((1000, 1000))))
def two_updates(np: Library, x1: Array, x2: Array, y1: Array, y2: Array, a: Array) -> Array:
    x1 += a @ y1
    x2 += y2 @ a
    return x1, x2


@kernel(lambda rng: (1.5, 1.2, rng.random((600, 600)), *(rng.random(600) for _ in range(6))))
def rank_two(
    np: Library,
    alpha: float,
    beta: float,
    a: Array,
    u1: Array,
    v1: Array,
    u2: Array,
    v2: Array,
    y: Array,
    z: Array,
) -> Array:
    a += np.outer(u1, v1) + np.outer(u2, v2)
    x = beta * y @ a + z
    return alpha * a @ x


@kernel(lambda rng: (rng.random((800, 800)), rng.random((800, 800)), rng.random(800)))
def sum_of_products(np: Library, a: Array, b: Array, x: Array) -> Array:
    return 1.5 * a @ x + 1.2 * b @ x


@kernel(lambda rng: (rng.random((70, 70)), rng.random((70, 50))))
def symmetric_update(np: Library, c: Array, a: Array) -> Array:
    for i in range(a.shape[0]):
        c[i, : i + 1] *= 1.2
        for k in range(a.shape[1]):
            c[i, : i + 1] += 1.5 * a[i, k] * a[: i + 1, k]
    return c


@kernel(lambda rng: (rng.random((50, 50)), rng.random((50, 35)), rng.random((50, 35))))
def symmetric_rank_two(np: Library, c: Array, a: Array, b: Array) -> Array:
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            c[i, : i + 1] += a[: i + 1, k] * b[i, k] + b[: i + 1, k] * a[i, k]
    return c


@kernel(lambda rng: (rng.random((40, 50)), rng.random((40, 40)), rng.random((40, 50))))
def symmetric_product(np: Library, c: Array, a: Array, b: Array) -> Array:
    held = np.empty(c.shape[1])
    for i in range(c.shape[0]):
        for j in range(c.shape[1]):
            c[:i, j] += b[i, j] * a[i, :i]
            held[j] = b[:i, j] @ a[i, :i]
        c[i, :] += b[i, :] * a[i, i] + held
    return c


@kernel(lambda rng: (rng.random((65, 65)), rng.random((65, 80))))
def triangular_product(np: Library, a: Array, b: Array) -> Array:
    for i in range(b.shape[0]):
        for j in range(b.shape[1]):
            b[i, j] += np.dot(a[i + 1 :, i], b[i + 1 :, j])
    return b


@kernel(lambda rng: (rng.random((30, 30, 64)), rng.random((64, 64))))
def stacked_product(np: Library, a: Array, c: Array) -> Array:
    for r in range(a.shape[0]):
        for q in range(a.shape[1]):
            a[r, q, :] = a[r, q, :] @ c
    return a


@kernel(lambda rng: (_definite(rng, 1000), rng.random(1000)))
def forward_substitution(np: Library, a: Array, b: Array) -> Array:
    x = np.zeros_like(b)
    for i in range(b.size):
        x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
    return x


@kernel(lambda rng: (_definite(rng, 80),))
def cholesky(np: Library, a: Array) -> Array:
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= np.dot(a[i, :j], a[j, :j])
            a[i, j] /= a[j, j]
        a[i, i] -= np.dot(a[i, :i], a[i, :i])
        a[i, i] = np.sqrt(a[i, i])
    return np.tril(a)


@kernel(lambda rng: (_definite(rng, 60),))
def triangles(np: Library, a: Array) -> Array:
    for k in range(a.shape[0]):
        a[k + 1 :, k] /= a[k, k]
        for i in range(k + 1, a.shape[0]):
            a[i, k + 1 :] -= a[i, k] * a[k, k + 1 :]
    return a


@kernel(lambda rng: (_definite(rng, 120), rng.random(120)))
def elimination(np: Library, a: Array, b: Array) -> Array:
    n = b.size
    for k in range(n):
        factors = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k:] -= np.outer(factors, a[k, k:])
        b[k + 1 :] -= factors * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return x


@kernel(lambda rng: (0.03 * rng.random(1000),))
def toeplitz_solve(np: Library, r: Array) -> Array:
    y = np.empty_like(r)
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, r.size):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


@kernel(lambda rng: (rng.random((70, 60)),))
def gram_schmidt(np: Library, a: Array) -> Array:
    q, r = np.zeros_like(a), np.zeros((a.shape[1], a.shape[1]))
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


@kernel(lambda rng: (rng.random((500, 300)),))
def covariance(np: Library, data: Array) -> Array:
    data -= np.mean(data, axis=0)
    cov = np.zeros((data.shape[1], data.shape[1]))
    for i in range(data.shape[1]):
        cov[i:, i] = cov[i, i:] = data[:, i] @ data[:, i:] / (data.shape[0] - 1.0)
    return cov


@kernel(lambda rng: (rng.random((500, 300)),))
def correlation(np: Library, data: Array) -> Array:
    deviation = np.std(data, axis=0)
    deviation[deviation <= 0.1] = 1.0
    data -= np.mean(data, axis=0)
    data /= np.sqrt(data.shape[0]) * deviation
    corr = np.eye(data.shape[1])
    for i in range(data.shape[1] - 1):
        corr[i + 1 :, i] = corr[i, i + 1 :] = data[:, i] @ data[:, i + 1 :]
    return corr


@kernel(lambda rng: (_definite(rng, 500), rng.random(500)))
def conjugate_gradients(np: Library, a: Array, b: Array) -> Array:
    x, r = np.zeros_like(b), b.copy()
    p, rho = r.copy(), r @ r
    for _ in range(100):
        step = a @ p
        alpha = rho / (p @ step)
        x += alpha * p
        r -= alpha * step
        before, rho = rho, r @ r
        if rho < 1e-20:
            break
        p = r + rho / before * p
    return x


@kernel(lambda rng: (_definite(rng, 300),))
def power_iteration(np: Library, a: Array) -> Array:
    x = np.ones(a.shape[0])
    value = 0.0
    for _ in range(60):
        y = a @ x
        value = x @ y / (x @ x)
        x = y / np.linalg.norm(y)
    return value
