"""Loops over elements and rows: recurrences, graphs, texts and roots."""

from typing import Any

import numpy

from benchmarks.kernels.kernel import kernel

#: A library with NumPy's names, and one of its arrays.
Library = Array = Any


@kernel(lambda rng: (rng.integers(1, 100, (150, 150)),))
def shortest_paths(np: Library, path: Array) -> Array:
    for k in range(path.shape[0]):
        path[:] = np.minimum(path, np.add.outer(path[:, k], path[k, :]))
    return path


@kernel(lambda rng: (rng.integers(0, 4, 60),))
def folded_pairs(np: Library, bases: Array) -> Array:
    n = bases.size
    table = np.zeros((n, n), int)
    for i in range(n - 2, -1, -1):
        for j in range(i + 1, n):
            best = max(table[i, j - 1], table[i + 1, j])
            if j - i > 1:
                best = max(best, table[i + 1, j - 1] + (bases[i] + bases[j] == 3))
            for k in range(i + 1, j):
                best = max(best, table[i, k] + table[k + 1, j])
            table[i, j] = best
    return table


@kernel(lambda rng: (rng.integers(0, 256, 1600, numpy.uint8),))
def checksum(np: Library, data: Array) -> int:
    crc = 0xFFFF
    for byte in data:
        crc ^= int(byte)
        for _ in range(8):
            crc = (crc >> 1) ^ 0x8408 if crc & 1 else crc >> 1
    return crc ^ 0xFFFF


@kernel(
    lambda rng: (
        numpy.cumsum(numpy.r_[0, rng.integers(1, 9, 300)]),
        rng.integers(0, 200, 3000),
        rng.random(3000),
        rng.random(200),
    )
)
def sparse_rows(np: Library, starts: Array, columns: Array, values: Array, x: Array) -> Array:
    y = np.empty(starts.size - 1)
    for i in range(starts.size - 1):
        row = slice(starts[i], starts[i + 1])
        y[i] = values[row] @ x[columns[row]]
    return y


@kernel(lambda rng: (rng.integers(0, 4, 30), rng.integers(0, 4, 34)))
def edit_distance(np: Library, a: Array, b: Array) -> Array:
    table = np.zeros((a.size + 1, b.size + 1), int)
    table[0, :], table[:, 0] = np.arange(b.size + 1), np.arange(a.size + 1)
    for i in range(1, a.size + 1):
        for j in range(1, b.size + 1):
            changed = table[i - 1, j - 1] + (a[i - 1] != b[j - 1])
            table[i, j] = min(changed, table[i - 1, j] + 1, table[i, j - 1] + 1)
    return table


@kernel(lambda rng: (rng.integers(1, 30, 40), rng.integers(1, 100, 40)))
def knapsack(np: Library, weights: Array, values: Array) -> Array:
    best = np.zeros(301, int)
    for weight, value in zip(weights, values):
        best[weight:] = np.maximum(best[weight:], best[:-weight] + value)
    return best


@kernel(lambda rng: (rng.random((12, 12)), rng.random((12, 5)), rng.integers(0, 5, 150)))
def likeliest_path(np: Library, moves: Array, shown: Array, seen: Array) -> Array:
    logs, seen_logs = np.log(moves), np.log(shown)
    score = seen_logs[:, seen[0]].copy()
    back = np.zeros((seen.size, score.size), int)
    for t in range(1, seen.size):
        ways = score[:, None] + logs
        back[t] = np.argmax(ways, axis=0)
        score = np.max(ways, axis=0) + seen_logs[:, seen[t]]
    path = [int(np.argmax(score))]
    for t in range(seen.size - 1, 0, -1):
        path.append(int(back[t, path[-1]]))
    return np.array(path)


@kernel(lambda rng: (rng.random(120),))
def tracked(np: Library, measured: Array) -> Array:
    f = np.array([[1.0, 0.1], [0.0, 1.0]])
    x, p = np.zeros(2), np.eye(2)
    found = np.empty((measured.size, 2))
    for i in range(measured.size):
        x = f @ x
        p = f @ p @ f.T + 0.01 * np.eye(2)
        gain = p[:, 0] / (p[0, 0] + 0.5)
        x = x + gain * (measured[i] - x[0])
        p = p - np.outer(gain, p[0])
        found[i] = x
    return found


@kernel(lambda rng: (rng.random(600),))
def compound(np: Library, rates: Array) -> Array:
    balance = np.empty(rates.size)
    held = 100.0
    for i in range(rates.size):
        held = held * (1.0 + rates[i] / 100.0) - 0.5
        balance[i] = held
    return balance


@kernel(lambda rng: (rng.random(1500),))
def sieve_of_peaks(np: Library, x: Array) -> Array:
    peaks = [i for i in range(1, x.size - 1) if x[i - 1] < x[i] > x[i + 1]]
    return np.array(peaks)


@kernel(lambda rng: (5000,))
def primes(np: Library, n: int) -> Array:
    prime = np.ones(n, bool)
    prime[:2] = False
    for i in range(2, int(n**0.5) + 1):
        if prime[i]:
            prime[i * i :: i] = False
    return np.nonzero(prime)[0]


@kernel(lambda rng: (rng.random(8), rng.random(40)))
def newton_roots(np: Library, coefficients: Array, starts: Array) -> Array:
    found = np.empty(starts.size)
    for i, x in enumerate(starts):
        for _ in range(8):
            value, slope = 0.0, 0.0
            for c in coefficients:
                slope = slope * x + value
                value = value * x + c
            x = x - value / (slope if abs(slope) > 1e-3 else 1.0)
        found[i] = x
    return found


@kernel(lambda rng: (rng.random((200, 3)),))
def sorted_by_insertion(np: Library, rows: Array) -> Array:
    rows = rows[:60].copy()
    for i in range(1, rows.shape[0]):
        row = rows[i].copy()
        j = i - 1
        while j >= 0 and rows[j, 0] > row[0]:
            rows[j + 1] = rows[j]
            j -= 1
        rows[j + 1] = row
    return rows
