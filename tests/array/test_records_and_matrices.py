"""`np.recarray`, `np.rec`, `np.matrix` and masked records over cut arrays: as NumPy's."""

import copy
import pickle

import numpy as np
import numpy.ma.mrecords
import pytest

import distarray
import distarray.numpy as dnp
from distarray.config import config

#: A GPU holds no records. NumPy advises against matrices.
pytestmark = [pytest.mark.host, pytest.mark.filterwarnings("ignore:the matrix subclass")]

KIND = [("a", float), ("b", int)]


def particles(np):
    made = np.zeros(13, KIND)
    made["a"], made["b"] = np.arange(13.0), 1
    return made


def seen_as_records(np):
    plain = particles(np)
    seen = plain.view(np.recarray)
    plain["a"][3] = 5
    seen.b = 4
    seen.a[1:3] = -1
    return plain, seen.a, type(seen).__name__, isinstance(seen, np.recarray), seen.dtype


def made_of_columns(np):
    made = np.rec.fromarrays([np.arange(13), np.ones(13)], names="u,v")
    return made.u * made.v, made[made.u > 4].v, type(made[2:]).__name__, made.dtype


def made_of_records(np):
    made = np.rec.fromrecords([(1, 2.0), (3, 4.0), (5, 6.0)], names="p,q")
    return made.p, made.q, made[1], np.sort(made, order="q")[::-1].p


def copied(np):
    made = np.rec.array(particles(np))
    other, third = copy.deepcopy(made), made.copy()
    other.a, third.b = 0, 0
    return made.a, other.a, third.b, type(other).__name__, type(third).__name__


def fields(np):
    made = np.recarray((7,), KIND)
    made.a, made.b = 1.5, [1, 2, 3, 4, 5, 6, 7]
    made.note = "kept"
    made.field("a")[2:] += 1
    return made.a, made.field(1), made.note, made.reshape(7, 1)[:, 0].b


def products(np):
    a = np.asmatrix(np.arange(15.0).reshape(5, 3))
    return a * a.T, a.T * a, 2 * a, a**1 if a.shape[0] == a.shape[1] else a[2], a.T @ a, a.A1


def shapes(np):
    a = np.matrix(np.arange(15.0).reshape(5, 3))
    found = [a[2], a[:, 1], a.sum(0), a.mean(1), a.max(1), a.H, a.ravel(), a.flatten(), np.sin(a)]
    return (*found, *[row.shape for row in a], a.argmax(0), a.argmax(), a.tolist())


def seen_as_a_matrix(np):
    plain = np.zeros((5, 3))
    a = np.asmatrix(plain)
    plain[3] = 2
    a[:, 1] = a[:, 2] + 1
    a[0, :] = 7
    return plain, a, np.shares_memory(plain, a), type(a[1:]).__name__


def solved(np):
    a = np.matrix("4 1; 2 3")
    return a.I, np.linalg.inv(a), a**2, np.bmat([[a, a], [a.T, a]]), type(np.linalg.inv(a)).__name__


def masked(np):
    data = np.ma.array(np.arange(13), mask=np.arange(13) < 5)
    made = np.ma.mrecords.fromarrays([data, np.ma.array(np.ones(13))], names="a,b")
    return made.a.sum(), made.b.mean(), made.a.mask, type(made).__name__


CALLS = [
    seen_as_records,
    made_of_columns,
    made_of_records,
    copied,
    fields,
    products,
    shapes,
    seen_as_a_matrix,
    solved,
    masked,
]


def plain(value):
    if isinstance(value, distarray.DistArray):
        value = value.full()
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value).__name__, np.shape(value), np.asarray(value).tolist()
    return value


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_as_numpys(world, ranks, call):
    wanted = [plain(value) for value in call(np)]

    def run(group):
        with config.override(replicate_below=0):
            return [plain(value) for value in call(dnp)]

    for found in world.run(ranks, run):
        assert found == wanted


def test_pickles_are_numpys(world, ranks):
    def run(group):
        with config.override(replicate_below=0):
            made = dnp.rec.array(particles(dnp)), dnp.asmatrix(dnp.ones((5, 3)))
            return [pickle.loads(pickle.dumps(one)) for one in made]

    for records, matrix in world.run(ranks, run):
        assert type(records) is np.recarray and records.a.tolist() == list(range(13))
        assert type(matrix) is np.matrix and matrix.sum() == 15
        assert isinstance(records, dnp.recarray) and isinstance(matrix, dnp.matrix)


def test_a_record_is_a_view(world, ranks):
    def run(group):
        with config.override(replicate_below=0):
            made = dnp.rec.array(particles(dnp))
            made[3].a = -1
            return int(made.a[3])

    assert set(world.run(ranks, run)) == {-1}


def test_read_from_a_file(world, ranks, tmp_path):
    particles(np).tofile(tmp_path / "particles.bin")

    def run(group):
        with config.override(replicate_below=0):
            found = dnp.rec.fromfile(str(tmp_path / "particles.bin"), dtype=KIND)
            return type(found).__name__, found.a.full().tolist()

    assert all(found == ("recarray", list(range(13))) for found in world.run(ranks, run))
