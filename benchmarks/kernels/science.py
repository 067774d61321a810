"""Formulas, fields, particles and small models, as scientists write them."""

from typing import Any

import numpy

from benchmarks.kernels.kernel import kernel

#: A library with NumPy's names, and one of its arrays.
Library = Array = Any


@kernel(lambda rng: tuple(rng.random(100000) for _ in range(4)))
def great_circles(np: Library, lat1: Array, lon1: Array, lat2: Array, lon2: Array) -> Array:
    half = np.sin((lat2 - lat1) / 2) ** 2
    half = half + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 2 * np.arctan2(np.sqrt(half), np.sqrt(1 - half))


@kernel(lambda rng: (125, 60))
def mandelbrot(np: Library, n: int, steps: int) -> Array:
    x, y = np.linspace(-2.0, 0.5, n), np.linspace(-1.2, 1.2, n)
    c = x + y[:, None] * 1j
    z, count = np.zeros_like(c), np.zeros(c.shape, int)
    for k in range(steps):
        inside = np.abs(z) < 2.0
        count[inside] = k
        z[inside] = z[inside] ** 2 + c[inside]
    return count


@kernel(lambda rng: (rng.random((40, 3)), rng.random((40, 3)), rng.random((40, 1)), 20))
def bodies(np: Library, place: Array, speed: Array, mass: Array, steps: int) -> Array:
    def pull(place: Array) -> Array:
        x, y, z = place[:, 0:1], place[:, 1:2], place[:, 2:3]
        dx, dy, dz = x.T - x, y.T - y, z.T - z
        cube = dx**2 + dy**2 + dz**2 + 0.01
        cube[cube > 0] = cube[cube > 0] ** -1.5
        return np.hstack(((dx * cube) @ mass, (dy * cube) @ mass, (dz * cube) @ mass))

    force = pull(place)
    energy = np.zeros(steps)
    for k in range(steps):
        speed += 0.005 * force
        place += 0.01 * speed
        force = pull(place)
        speed += 0.005 * force
        energy[k] = 0.5 * np.sum(mass * speed**2)
    return place, energy


@kernel(lambda rng: (rng.random(40000), rng.random(40000), 100))
def ring_means(np: Library, data: Array, radius: Array, rings: int) -> Array:
    largest = radius.max()
    means = np.zeros(rings)
    for i in range(rings):
        within = (radius >= largest * i / rings) & (radius < largest * (i + 1) / rings)
        means[i] = data[within].mean()
    return means


@kernel(lambda rng: (rng.random(40000), rng.random(40000), 100))
def ring_histogram(np: Library, data: Array, radius: Array, rings: int) -> Array:
    count = np.histogram(radius, rings)[0]
    return np.histogram(radius, rings, weights=data)[0] / count


@kernel(lambda rng: (rng.random((16, 16, 64, 64)),))
def softmax(np: Library, x: Array) -> Array:
    powers = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return powers / np.sum(powers, axis=-1, keepdims=True)


@kernel(
    lambda rng: (
        rng.random((64, 300)),
        rng.random((300, 1000)),
        rng.random(1000),
        rng.random((1000, 400)),
        rng.random(400),
    )
)
def perceptron(np: Library, x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Array:
    hidden = np.maximum(x @ w1 + b1, 0)
    out = hidden @ w2 + b2
    powers = np.exp(out - np.max(out, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)


@kernel(lambda rng: (rng.random((1000, 1000)),))
def trace_of_tanh(np: Library, a: Array) -> Array:
    total = 0.0
    for i in range(a.shape[0]):
        total += np.tanh(a[i, i])
    return a + total


@kernel(lambda rng: (rng.random((3, 50, 50)), rng.random((50, 50)), rng.random(32)))
def contour(np: Library, terms: Array, start: Array, angles: Array) -> Array:
    first, second = np.zeros_like(start, complex), np.zeros_like(start, complex)
    for angle in angles:
        z = np.exp(2j * np.pi * angle)
        whole = np.zeros_like(start, complex)
        for n in range(terms.shape[0]):
            whole += np.power(z, n - 1) * terms[n]
        x = np.linalg.solve(whole + 5 * np.eye(start.shape[0]), start + 0j)
        first += x
        second += x * z
    return first, second


@kernel(lambda rng: (rng.random(16384) + 1j * rng.random(16384),))
def fourier_by_hand(np: Library, x: Array) -> Array:
    n, y = x.size, x.reshape(1, -1)
    while y.shape[0] < n:
        half = y.shape[1] // 2
        even, odd = y[:, :half], y[:, half:]
        factor = np.exp(-1j * np.pi * np.arange(y.shape[0]) / y.shape[0])[:, None]
        y = np.concatenate((even + factor * odd, even - factor * odd))
    return y.ravel()


@kernel(lambda rng: (rng.random((3, 6, 6)), rng.random((4, 3, 6, 6)), rng.integers(0, 3, (3, 4))))
def self_energies(np: Library, d: Array, g: Array, near: Array) -> Array:
    found = np.zeros_like(g)
    for e in range(g.shape[0]):
        for a in range(g.shape[1]):
            for b in range(near.shape[1]):
                found[e, a] += d[a] @ g[e, near[a, b]] @ d[a]
    return found


@kernel(lambda rng: (rng.random((2000, 2)), 6))
def clusters(np: Library, points: Array, k: int) -> Array:
    centres = points[:k].copy()
    label = np.zeros(points.shape[0], int)
    for _ in range(10):
        apart = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
        label = apart.argmin(axis=1)
        for i in range(k):
            if np.any(label == i):
                centres[i] = points[label == i].mean(axis=0)
    return centres, label


@kernel(lambda rng: (50 + 50 * rng.random(100000), 0.5 + rng.random(100000)))
def options(np: Library, price: Array, years: Array) -> Array:
    def below(x: Array) -> Array:
        return 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    spread = 0.3 * np.sqrt(years)
    first = (np.log(price / 75.0) + (0.02 + 0.045) * years) / spread
    return price * below(first) - 75.0 * np.exp(-0.02 * years) * below(first - spread)


@kernel(lambda rng: (numpy.where(rng.random((100, 100)) < 0.5, 1, -1), rng.random((20, 100, 100))))
def spins(np: Library, spin: Array, chance: Array) -> Array:
    rows, columns = np.indices(spin.shape)
    even = (rows + columns) % 2 == 0
    for k in range(chance.shape[0]):
        near = np.roll(spin, 1, 0) + np.roll(spin, -1, 0) + np.roll(spin, 1, 1)
        near = near + np.roll(spin, -1, 1)
        turned = (chance[k] < np.exp(-0.8 * spin * near)) & (even if k % 2 else ~even)
        spin[turned] *= -1
    return spin


@kernel(lambda rng: (rng.random((5000, 20)), rng.integers(0, 2, 5000)))
def logistic_fit(np: Library, x: Array, label: Array) -> Array:
    w = np.zeros(x.shape[1])
    for _ in range(60):
        guess = 1.0 / (1.0 + np.exp(-(x @ w)))
        w -= 0.5 * x.T @ (guess - label) / label.size
    return w


@kernel(lambda rng: (rng.random((500, 500)) < 0.1,))
def page_rank(np: Library, links: Array) -> Array:
    out = np.maximum(links.sum(axis=1), 1)
    rank = np.full(links.shape[0], 1.0 / links.shape[0])
    for _ in range(50):
        new = 0.15 / rank.size + 0.85 * (rank / out) @ links
        if np.abs(new - rank).sum() < 1e-12:
            break
        rank = new
    return rank


@kernel(lambda rng: (rng.integers(0, 256, (600, 600)),))
def equalized(np: Library, picture: Array) -> Array:
    count = np.bincount(picture.ravel(), minlength=256)
    share = count.cumsum() / picture.size
    return np.floor(255 * share[picture])


@kernel(lambda rng: (rng.random(3), 400))
def lorenz(np: Library, x: Array, steps: int) -> Array:
    def slope(x: Array) -> Array:
        return np.array(
            [10.0 * (x[1] - x[0]), x[0] * (28.0 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]
        )

    path = np.empty((steps, 3))
    for k in range(steps):
        half = slope(x + 0.005 * slope(x))
        x = x + 0.01 * half
        path[k] = x
    return path
