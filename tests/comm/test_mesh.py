"""Meshes: shape, names, sub-meshes, ranks outside, errors, and what they cost."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

from distarray.comm import DeviceMesh, default_mesh, init_device_mesh
from distarray.errors import DivergenceError, MeshError
from distarray.layout.placement import Fold


def two_dims(size):
    """The most square grid."""
    rows = max(r for r in range(1, size + 1) if size % r == 0 and r * r <= size)
    return rows, size // rows


@pytest.mark.host
def test_a_mesh_knows_its_place(world, ranks):
    def program(group):
        shape = two_dims(group.size)
        mesh = DeviceMesh(group, shape, ("dp", "tp"))
        assert mesh.shape == shape
        assert mesh.ndim == 2
        assert mesh.mesh_dim_names == ("dp", "tp")
        assert mesh.coords == np.unravel_index(group.rank, shape)
        assert mesh.coords_of(group.rank) == mesh.coords
        assert mesh.rank == group.rank
        assert mesh.ranks == tuple(range(group.size))
        assert mesh.size() == group.size
        assert mesh.size("tp") == mesh.size(1) == mesh.size(-1) == shape[1]
        assert mesh.device_type == "cpu"
        assert mesh.xp is np
        assert mesh.group is group
        assert f"dp={shape[0]}" in repr(mesh)

    world.run(ranks, program)


@pytest.mark.host
def test_equal_meshes_are_one(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size,))
        assert DeviceMesh(group, group.size) is mesh
        assert DeviceMesh(group, [np.int64(group.size)]) is mesh
        assert init_device_mesh("cpu", (group.size,), comm=group) is mesh
        assert default_mesh() is mesh
        assert default_mesh() == mesh
        assert mesh != DeviceMesh(group, (group.size, 1))
        assert mesh != DeviceMesh(group, (group.size,), ("x",))
        assert mesh != "mesh"
        assert hash(mesh) == hash(default_mesh())
        assert copy.deepcopy([mesh])[0] is mesh
        assert copy.copy(mesh) is mesh
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(mesh)

    world.run(ranks, program)


def test_sub_meshes_and_subgroups(world, ranks):
    def program(group):
        a, b = two_dims(group.size)
        mesh = DeviceMesh(group, (a, 1, b), ("a", "one", "b"))
        row, _, column = mesh.coords
        along_b = mesh["b"].group.allgather_object(group.rank)
        along_a = mesh.subgroup(("a",)).allgather_object(group.rank)
        swapped = mesh["b", "a"]
        everyone = swapped.group.allgather_object(group.rank)
        total = mesh.subgroup((0, 2)).allreduce(np.array(1), Fold.SUM)
        alone = mesh["one"].group.allgather_object(group.rank)
        grid = np.arange(group.size).reshape(a, b)
        assert along_b == grid[row].tolist()
        assert along_a == grid[:, column].tolist()
        assert everyone == grid.T.ravel().tolist()
        assert swapped.shape == (b, a)
        assert swapped.mesh_dim_names == ("b", "a")
        assert swapped.coords == (column, row)
        assert total == group.size
        assert alone == [group.rank]
        assert mesh["b"] is mesh["b"]
        assert mesh["b"].coords == (column,)
        assert mesh["a", "one", "b"] is mesh
        assert mesh.subgroup((2,)) is mesh.subgroup(("b",)) is mesh["b"].group
        assert mesh["a", "b"]["b"] == mesh["b"]

    world.run(ranks, program)


def test_flatten(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, two_dims(group.size), ("dp", "tp"))
        flat = mesh.flatten("all")
        assert flat.shape == (group.size,)
        assert flat.mesh_dim_names == ("all",)
        assert mesh.flatten().mesh_dim_names == ("dp_tp",)
        assert flat.group is group
        assert flat.rank == group.rank

    world.run(ranks, program)


def test_ranks_in_another_order(world, ranks):
    def program(group):
        backwards = list(range(group.size))[::-1]
        mesh = DeviceMesh(group, (group.size,), ranks=backwards)
        order = mesh.group.allgather_object(group.rank)
        nested = DeviceMesh(group, ranks=np.arange(group.size).reshape(two_dims(group.size)))
        assert order == backwards
        assert mesh.coords == (group.size - 1 - group.rank,)
        assert mesh.group.world_ranks == tuple(backwards)
        assert nested.shape == two_dims(group.size)

    world.run(ranks, program)


def test_ranks_outside_take_no_part(world, ranks):
    def program(group):
        inside = group.rank != 0
        if group.size == 1:
            return
        mesh = DeviceMesh(group, (group.size - 1,), ("x",), ranks=range(1, group.size))
        block = np.full(3, float(group.rank))
        total = mesh.group.allreduce(block, Fold.SUM)
        stack = mesh["x"].group.allgather(block)
        mesh.group.exchange([], [])
        mesh.subgroup(("x",)).barrier()
        objects = mesh.group.allgather_object(group.rank)
        same = mesh.group.broadcast(block, 0)
        assert (mesh.coords is not None) == inside
        assert mesh.rank == (group.rank - 1 if inside else -1)
        assert mesh.size() == group.size - 1
        if inside:
            assert (total == sum(range(1, group.size))).all()
            assert stack.shape == (group.size - 1, 3)
            assert objects == list(range(1, group.size))
        else:
            assert total is block
            assert same is block
            assert stack.shape == (1, 3)
            assert objects == [0]

    world.run(ranks, program)


def test_only_members_need_to_make_it(world, ranks):
    def program(group):
        if group.rank == group.size - 1:
            mesh = DeviceMesh(group, (1,), ranks=[group.rank])
            assert mesh.group.allgather_object("x") == ["x"]

    world.run(ranks, program)


WRONG = [
    ({"shape": (2, 5)}, "a mesh of shape (2, 5) has 10 rank(s), the communicator has"),
    ({"shape": (0,)}, "tuple of positive integers"),
    ({"shape": (-1,)}, "tuple of positive integers"),
    ({"shape": "ab"}, "tuple of positive integers"),
    ({"shape": (1.5,)}, "tuple of positive integers"),
    ({"shape": None, "mesh_dim_names": ("a", "b")}, "2 name(s) ('a', 'b') for a mesh of shape"),
    ({"shape": None, "mesh_dim_names": (1,)}, "non-empty str"),
    ({"shape": (1, 1), "ranks": [[0]], "mesh_dim_names": ("a", "a")}, "not distinct"),
    ({"shape": (1,), "ranks": [99]}, "not all in the communicator"),
    ({"shape": (1,), "ranks": [-1]}, "not all in the communicator"),
    ({"shape": (2,), "ranks": [0, 0]}, "not distinct"),
    ({"shape": (2,), "ranks": [0]}, "has 2 rank(s), ranks= names 1"),
    ({"shape": (1,), "ranks": ["a"]}, "ranks are integers"),
    ({"shape": None, "device_type": "tpu"}, "device_type is one of"),
]


def test_what_is_no_communicator():
    with pytest.raises(MeshError, match='not str; init_device_mesh\\("cpu", shape\\) makes'):
        DeviceMesh("cpu", (1,))


def test_cupy_is_named_where_it_is_missing(world, ranks, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)

    def program(group):
        mesh = DeviceMesh(group, (ranks,), device_type="cuda")
        with pytest.raises(ImportError, match=r"needs cupy.*distarray-mpi\[cuda12\]"):
            mesh.asarray(1.0)

    world.run(ranks, program)


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_wrong_arguments(world, ranks, arguments, words):
    def program(group):
        with pytest.raises(MeshError) as caught:
            DeviceMesh(group, **arguments)
        assert words in str(caught.value)
        assert len(set(group.allgather_object(str(caught.value)))) == 1

    world.run(ranks, program)


def test_wrong_questions(world, ranks):
    def program(group):
        mesh = DeviceMesh(group, (group.size, 1), ("a", "b"))
        with pytest.raises(MeshError, match="no dimension 'c'"):
            mesh["c"]
        with pytest.raises(MeshError, match="not distinct"):
            mesh["a", "a"]
        with pytest.raises(MeshError, match="indexed by the names"):
            mesh[0]
        with pytest.raises(MeshError, match="without mesh_dim_names"):
            DeviceMesh(group, (group.size,))["a"]
        with pytest.raises(MeshError, match="out of range"):
            mesh.subgroup((2,))
        with pytest.raises(MeshError, match="not distinct"):
            mesh.subgroup((0, -2))
        with pytest.raises(MeshError, match="ranks 0 to"):
            mesh.coords_of(group.size)
        with pytest.raises(MeshError, match="mpi4py communicator"):
            DeviceMesh("world", (1,))

    world.run(ranks, program)


def test_ranks_that_disagree(world, ranks):
    def program(group):
        shape = (group.size, 1, 1) if group.rank else (1, 1, group.size)
        if group.size > 1:
            with pytest.raises(DivergenceError, match="do not make the same mesh"):
                DeviceMesh(group, shape)
        assert DeviceMesh(group, (1, group.size, 1)).size() == group.size

    world.run(ranks, program)


@pytest.mark.counts(lambda n: n > 1)
def test_ranks_that_disagree_about_a_mesh_that_some_have(world, ranks):
    """A mesh that is there already is no reason not to look: others would wait for this rank."""

    def program(group):
        known = DeviceMesh(group, (group.size,), ("known",))
        for shape, name in ((group.size, "unknown"), (group.size + 1, "known")):
            with pytest.raises(DivergenceError, match="do not make the same mesh"):
                DeviceMesh(
                    group, (group.size if group.rank else shape,), "known" if group.rank else name
                )
        assert DeviceMesh(group, (group.size,), ("known",)) is known

    world.run(ranks, program)


def test_many_meshes_cost_no_communicators(world, ranks):
    def program(group):
        shape, others = two_dims(group.size), len(group.meshes)  # those of other tests
        for number in range(2_100 if world.name == "mpi" else 100):
            mesh = DeviceMesh(group, shape, ("a", f"b{number % 7}"))
            mesh["a"].group.size  # noqa: B018
            mesh.subgroup((1,))
        assert len(group.meshes) - others < 40

    world.run(ranks, program)


# -- communicators of the program ------------------------------------------------------------------


@pytest.mark.mpi
def test_communicators_of_the_program(world, ranks):
    from mpi4py import MPI

    from distarray.comm.mpi import group_of

    def program(group):
        half = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2)
        mesh = DeviceMesh(half, (half.size,), ("x",))
        total = mesh.group.allreduce(np.array(1), Fold.SUM)
        assert total == half.size
        assert mesh.comm("x").size == half.size
        assert mesh.comm().Get_size() == half.size
        assert mesh.comm() != half
        assert group_of(half) is mesh.group
        assert group_of(mesh.comm()) is mesh.group
        own = mesh.group.comm
        half.Free()
        assert own == MPI.COMM_NULL or mesh.group.comm == MPI.COMM_NULL

    world.run(ranks, program)


@pytest.mark.mpi
def test_comm_null_makes_a_mesh_outside(world, ranks):
    from mpi4py import MPI

    def program(group):
        part = MPI.COMM_WORLD.Split(0 if MPI.COMM_WORLD.rank == 0 else MPI.UNDEFINED)
        mesh = DeviceMesh(part, (1,), ("x",))
        assert (mesh.coords is None) == (group.rank > 0)
        assert (mesh.comm("x") == MPI.COMM_NULL) == (group.rank > 0)
        mesh["x"].group.barrier()
        if part != MPI.COMM_NULL:
            part.Free()

    world.run(ranks, program)


@pytest.mark.mpi
def test_communicators_come_and_go(world, ranks):
    """Each is duplicated by the library: kept ones would use up MPI's two thousand."""
    from mpi4py import MPI

    def program(group):
        for _ in range(2100 if group.size == 2 else 50):
            comm = MPI.COMM_WORLD.Dup()
            mesh = DeviceMesh(comm, (comm.size, 1), ("a", "b"))
            mesh.subgroup((1,))
            comm.Free()

    world.run(ranks, program)


def test_new_arrays_go_to_the_mesh_of_a_with_block(world, ranks):
    import distarray.numpy as dnp

    def program(group):
        flat, grid = DeviceMesh(group, (ranks,)), DeviceMesh(group, (1, ranks))
        with grid as entered:
            assert entered is grid
            assert default_mesh() is grid
            assert dnp.zeros(3).mesh is grid
            with flat:
                assert dnp.zeros(3).mesh is flat
            assert dnp.zeros(3).mesh is grid
        with pytest.raises(KeyError), grid:
            raise KeyError
        assert default_mesh() is not grid

    world.run(ranks, program)


FIRST = """
import sys, threading
import distarray
sys.setswitchinterval(1e-6)
found, start = [], threading.Barrier(6)
def work():
    start.wait()
    mesh = distarray.default_mesh()
    named = distarray.DeviceMesh(None, 1, ("x",))
    found.append(tuple(map(id, (mesh, mesh.group, mesh.subgroup((0,)), named, named.group))))
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(found)))
"""


@pytest.mark.usefixtures("own_processes")
def test_threads_that_need_the_first_mesh_get_one():
    done = subprocess.run(
        [sys.executable, "-c", FIRST], capture_output=True, text=True, timeout=100
    )
    assert done.stdout.split() == ["6", "1"], done.stderr
