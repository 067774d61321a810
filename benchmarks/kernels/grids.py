"""Differential equations on small grids, and filters of pictures."""

from typing import Any

from benchmarks.kernels.kernel import kernel

#: A library with NumPy's names, and one of its arrays.
Library = Array = Any


@kernel(lambda rng: (rng.random(3200), rng.random(3200)))
def line_average(np: Library, a: Array, b: Array) -> Array:
    for _ in range(50):
        b[1:-1] = (a[:-2] + a[1:-1] + a[2:]) / 3
        a[1:-1] = (b[:-2] + b[1:-1] + b[2:]) / 3
    return a


@kernel(lambda rng: (rng.random((150, 150)), rng.random((150, 150))))
def plane_average(np: Library, a: Array, b: Array) -> Array:
    for _ in range(20):
        b[1:-1, 1:-1] = 0.2 * (
            a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1]
        )
        a[1:-1, 1:-1] = 0.2 * (
            b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1]
        )
    return a


@kernel(lambda rng: (rng.random((50, 50)),))
def gauss_seidel(np: Library, a: Array) -> Array:
    n = a.shape[0]
    for _ in range(3):
        for i in range(1, n - 1):
            a[i, 1:-1] += (
                a[i - 1, :-2] + a[i - 1, 1:-1] + a[i - 1, 2:] + a[i, 2:] + a[i + 1, :-2]
            ) + (a[i + 1, 1:-1] + a[i + 1, 2:])
            for j in range(1, n - 1):
                a[i, j] = (a[i, j] + a[i, j - 1]) / 9.0
    return a


@kernel(lambda rng: (rng.random((30, 30, 30)),))
def heat_in_space(np: Library, a: Array) -> Array:
    inner = slice(1, -1)
    for _ in range(10):
        change = (
            a[2:, inner, inner]
            + a[:-2, inner, inner]
            + a[inner, 2:, inner]
            + a[inner, :-2, inner]
            + a[inner, inner, 2:]
            + a[inner, inner, :-2]
            - 6.0 * a[inner, inner, inner]
        )
        a[inner, inner, inner] += 0.125 * change
    return a


@kernel(lambda rng: tuple(rng.random((200, 220)) for _ in range(3)))
def electric_field(np: Library, ex: Array, ey: Array, hz: Array) -> Array:
    for step in range(20):
        ey[0, :] = step
        ey[1:, :] -= 0.5 * (hz[1:, :] - hz[:-1, :])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return hz


@kernel(lambda rng: (rng.random((100, 100)),))
def alternating_directions(np: Library, u: Array) -> Array:
    n = u.shape[0]
    a, b, lead = -0.4, 1.8, 0.3
    v, p, q = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for _ in range(2):
        for source, target in ((u, v), (v, u)):
            target[0, 1:-1] = 1.0
            p[1:-1, 0], q[1:-1, 0] = 0.0, target[0, 1:-1]
            for j in range(1, n - 1):
                p[1:-1, j] = -a / (a * p[1:-1, j - 1] + b)
                q[1:-1, j] = (
                    lead * source[j, :-2]
                    + (1.0 - 2.0 * lead) * source[j, 1:-1]
                    + lead * source[j, 2:]
                    - a * q[1:-1, j - 1]
                ) / (a * p[1:-1, j - 1] + b)
            target[n - 1, 1:-1] = 1.0
            for j in range(n - 2, 0, -1):
                target[j, 1:-1] = p[1:-1, j] * target[j + 1, 1:-1] + q[1:-1, j]
    return u


@kernel(lambda rng: (rng.random((68, 68, 60)), rng.random((64, 64, 60))))
def limited_diffusion(np: Library, field: Array, coefficient: Array) -> Array:
    laplace = 4.0 * field[1:-1, 1:-1] - (
        field[2:, 1:-1] + field[:-2, 1:-1] + field[1:-1, 2:] + field[1:-1, :-2]
    )
    along = laplace[1:, 1:-1] - laplace[:-1, 1:-1]
    along = np.where(along * (field[2:-1, 2:-2] - field[1:-2, 2:-2]) > 0, 0, along)
    across = laplace[1:-1, 1:] - laplace[1:-1, :-1]
    across = np.where(across * (field[2:-2, 2:-1] - field[2:-2, 1:-2]) > 0, 0, across)
    flux = along[1:] - along[:-1] + across[:, 1:] - across[:, :-1]
    return field[2:-2, 2:-2] - coefficient * flux


@kernel(lambda rng: tuple(rng.random((60, 60, 40)) for _ in range(3)))
def vertical_sweep(np: Library, wind: Array, field: Array, source: Array) -> Array:
    levels = field.shape[2]
    upper, right = np.zeros_like(field), np.zeros_like(field)
    for k in range(levels):
        lower = -0.25 * wind[:, :, k]
        c = 0.25 * wind[:, :, k]
        d = field[:, :, k] + source[:, :, k]
        if k:
            divided = 1.0 / (2.0 - lower * upper[:, :, k - 1])
            upper[:, :, k] = c * divided
            right[:, :, k] = (d - lower * right[:, :, k - 1]) * divided
        else:
            upper[:, :, k], right[:, :, k] = c / 2.0, d / 2.0
    for k in range(levels - 2, -1, -1):
        right[:, :, k] -= upper[:, :, k] * right[:, :, k + 1]
    return right


@kernel(lambda rng: tuple(0.01 * rng.random((61, 61)) for _ in range(3)))
def driven_cavity(np: Library, u: Array, v: Array, p: Array) -> Array:
    h, dt, nu = 0.05, 0.001, 0.1
    source = np.zeros_like(u)
    for _ in range(5):
        un, vn = u.copy(), v.copy()
        ux = (u[1:-1, 2:] - u[1:-1, :-2]) / (2 * h)
        vy = (v[2:, 1:-1] - v[:-2, 1:-1]) / (2 * h)
        uy = (u[2:, 1:-1] - u[:-2, 1:-1]) / (2 * h)
        vx = (v[1:-1, 2:] - v[1:-1, :-2]) / (2 * h)
        source[1:-1, 1:-1] = (ux + vy) / dt - ux**2 - 2 * uy * vx - vy**2
        for _ in range(10):
            pn = p.copy()
            p[1:-1, 1:-1] = (
                pn[1:-1, 2:] + pn[1:-1, :-2] + pn[2:, 1:-1] + pn[:-2, 1:-1]
            ) / 4 - h * h / 4 * source[1:-1, 1:-1]
            p[:, -1], p[0, :], p[:, 0], p[-1, :] = p[:, -2], p[1, :], p[:, 1], 0.0
        for w, wn, gradient in (
            (u, un, p[1:-1, 2:] - p[1:-1, :-2]),
            (v, vn, p[2:, 1:-1] - p[:-2, 1:-1]),
        ):
            w[1:-1, 1:-1] = (
                wn[1:-1, 1:-1]
                - un[1:-1, 1:-1] * dt / h * (wn[1:-1, 1:-1] - wn[1:-1, :-2])
                - vn[1:-1, 1:-1] * dt / h * (wn[1:-1, 1:-1] - wn[:-2, 1:-1])
                - dt / (2 * h) * gradient
                + nu * dt / h**2 * (wn[1:-1, 2:] + wn[1:-1, :-2] - 4 * wn[1:-1, 1:-1])
                + nu * dt / h**2 * (wn[2:, 1:-1] + wn[:-2, 1:-1])
            )
        u[0, :], u[:, 0], u[:, -1], u[-1, :] = 0.0, 0.0, 0.0, 1.0
        v[0, :], v[-1, :], v[:, 0], v[:, -1] = 0.0, 0.0, 0.0, 0.0
    return u, v, p


@kernel(lambda rng: (rng.random((8, 32, 32, 3)), rng.random((3, 3, 3, 16)), rng.random(16)))
def convolution(np: Library, images: Array, weights: Array, bias: Array) -> Array:
    k = weights.shape[0]
    n, height, width, _ = images.shape
    result = np.empty((n, height - k + 1, width - k + 1, weights.shape[3]))
    for i in range(height - k + 1):
        for j in range(width - k + 1):
            result[:, i, j, :] = np.sum(
                images[:, i : i + k, j : j + k, :, np.newaxis] * weights, axis=(1, 2, 3)
            )
    return np.maximum(result + bias, 0)


@kernel(lambda rng: (rng.random((100, 100)) < 0.3,))
def life(np: Library, alive: Array) -> Array:
    for _ in range(20):
        near = sum(
            np.roll(np.roll(alive, i, 0), j, 1).astype(int)
            for i in (-1, 0, 1)
            for j in (-1, 0, 1)
            if i or j
        )
        alive = (near == 3) | (alive & (near == 2))
    return alive


@kernel(lambda rng: (rng.random((120, 120)),))
def red_and_black(np: Library, u: Array) -> Array:
    for _ in range(25):
        for first in (1, 2):
            for second in (1, 2):
                rows, columns = slice(first, -1, 2), slice(second, -1, 2)
                above, below = slice(first - 1, -2, 2), slice(first + 1, None, 2)
                left, right = slice(second - 1, -2, 2), slice(second + 1, None, 2)
                around = u[above, columns] + u[below, columns] + u[rows, left] + u[rows, right]
                u[rows, columns] += 1.6 * (around / 4 - u[rows, columns])
    return u


@kernel(lambda rng: (rng.random(10000),))
def wave(np: Library, u: Array) -> Array:
    before = u.copy()
    for _ in range(100):
        after = np.zeros_like(u)
        after[1:-1] = 2 * u[1:-1] - before[1:-1] + 0.25 * (u[2:] - 2 * u[1:-1] + u[:-2])
        before, u = u, after
    return u


@kernel(lambda rng: (rng.random((400, 200)),))
def recursive_filter(np: Library, picture: Array) -> Array:
    a, b1, b2 = 0.2, 0.9, -0.1
    ahead, back = np.zeros_like(picture), np.zeros_like(picture)
    ahead[:, 0] = a * picture[:, 0]
    ahead[:, 1] = a * picture[:, 1] + b1 * ahead[:, 0]
    for j in range(2, picture.shape[1]):
        ahead[:, j] = a * picture[:, j] + b1 * ahead[:, j - 1] + b2 * ahead[:, j - 2]
    for j in range(picture.shape[1] - 3, -1, -1):
        back[:, j] = a * picture[:, j + 1] + b1 * back[:, j + 1] + b2 * back[:, j + 2]
    return ahead + back
