"""Under config.reproducible linear algebra gives the same bits on every number of ranks."""

import numpy as np
import pytest

from distarray import DistArray, Replicate, Shard, distribute
from distarray.comm import DeviceMesh, run_threads
from distarray.comm.tune import one_blas_thread
from distarray.config import config
from distarray.testing import assert_matches

RNG = np.random.default_rng(5)
SQUARE = RNG.standard_normal((30, 30))
TALL = RNG.standard_normal((90, 4))
STACK = RNG.standard_normal((2, 12, 12))
POSITIVE = SQUARE @ SQUARE.T + 30 * np.eye(30)
RIGHT = RNG.standard_normal((30, 2))

CALLS = {
    "cholesky": lambda put: np.linalg.cholesky(put(POSITIVE)),
    "cholesky upper": lambda put: np.linalg.cholesky(put(POSITIVE), upper=True),
    "inv": lambda put: np.linalg.inv(put(SQUARE)),
    "inv of a stack": lambda put: np.linalg.inv(put(STACK)),
    "det": lambda put: np.linalg.det(put(SQUARE)),
    "slogdet": lambda put: np.linalg.slogdet(put(STACK)),
    "solve": lambda put: np.linalg.solve(put(SQUARE), put(RIGHT)),
    "solve one": lambda put: np.linalg.solve(put(SQUARE), put(RIGHT[:, 0])),
    "solve stacks": lambda put: np.linalg.solve(put(STACK), put(RIGHT[:12, 0])),
    "qr": lambda put: np.linalg.qr(put(TALL)),
    "qr complete": lambda put: np.linalg.qr(put(TALL), "complete"),
    "svd": lambda put: np.linalg.svd(put(TALL), full_matrices=False),
    "svd of a stack": lambda put: np.linalg.svd(put(STACK), full_matrices=False),
    "svdvals": lambda put: np.linalg.svdvals(put(SQUARE)),
    "eigh": lambda put: np.linalg.eigh(a=put(POSITIVE), UPLO="U"),
    "eigvalsh": lambda put: np.linalg.eigvalsh(put(STACK)),
    "eig": lambda put: np.linalg.eig(put(SQUARE)),
    "eigvals of a stack": lambda put: np.linalg.eigvals(put(STACK)),
    "lstsq": lambda put: np.linalg.lstsq(put(TALL), put(TALL[:, 0] ** 2), rcond=None),
    "pinv": lambda put: np.linalg.pinv(put(TALL)),
    "matrix_rank": lambda put: np.linalg.matrix_rank(put(TALL)),
    "cond": lambda put: np.linalg.cond(put(SQUARE)),
    "cond by sums": lambda put: np.linalg.cond(put(SQUARE), 1),
    "norm": lambda put: np.linalg.norm(put(TALL)),
    "norm of values": lambda put: np.linalg.norm(put(TALL), "nuc"),
    "matrix_power": lambda put: np.linalg.matrix_power(put(SQUARE), -3),
    "multi_dot": lambda put: np.linalg.multi_dot([put(TALL.T), put(TALL), put(TALL.T)]),
    "tensorinv": lambda put: np.linalg.tensorinv(put(SQUARE.reshape(5, 6, 30))),
}
#: Made of sums and products that have an order of their own.
COMPOSED = {"pinv", "norm", "norm of values", "matrix_power", "multi_dot"}


def bits(value):
    """Results as NumPy arrays."""
    items = value if isinstance(value, tuple) else (value,)
    return [x.full() if isinstance(x, DistArray) else np.asarray(x) for x in items]


def on(mesh, call, cut):
    def put(values):
        placement = Shard(min(cut, values.ndim - 1)) if cut is not None else Replicate()
        return distribute(values, mesh, [placement], src=None)

    with config.override(reproducible=True, replicate_below=0):
        return call(put)


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_are_those_of_one_rank(world, ranks, name):
    call = CALLS[name]
    (wanted,) = run_threads(1, lambda group: bits(on(DeviceMesh(group, (1,)), call, 0)))
    if name not in COMPOSED:
        with one_blas_thread():
            plain = bits(call(lambda values: values))
        for have, want in zip(wanted, plain, strict=True):
            np.testing.assert_array_equal(have, want)

    def program(group):
        for cut in (0, 1, None):
            found = bits(on(DeviceMesh(group, (ranks,)), call, cut))
            for have, want in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(have, want)

    world.run(ranks, program)


def test_results_lie_as_the_operand(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (ranks,))
        inverse = on(mesh, CALLS["inv"], 1)
        assert inverse.placements == (Shard(1),)
        assert inverse.to_local().base is None
        assert_matches(inverse, np.linalg.inv(SQUARE))
        with pytest.raises(np.linalg.LinAlgError, match="Singular"):
            on(mesh, lambda put: np.linalg.inv(put(np.zeros((9, 9)))), 0)

    world.run(ranks, program)
