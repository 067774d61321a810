"""distarray.numpy against the array API standard; the counts are printed by `--array-api`."""

import importlib

import numpy as np
import pytest

import distarray
import distarray.numpy as dnp
from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.layout import Replicate, Shard
from distarray.ops.namespaces import Standard
from distarray.testing.array_api import check_dtypes, check_names, check_signatures

pytest.importorskip("array_api_strict")


@pytest.mark.parametrize("report", check_names(), ids=lambda report: report.title)
def test_names(report):
    assert report.total
    assert report.differ == []


def test_signatures():
    report = check_signatures()
    assert report.total > 150
    assert report.differ == []


@pytest.mark.filterwarnings("ignore")
def test_results_for_every_data_type(world):
    for ranks in {world.ranks[0], world.ranks[min(2, len(world.ranks) - 1)]}:

        def program(group):
            return check_dtypes(DeviceMesh(group, (group.size,)))

        report = world.run(ranks, program, timeout=60)[0]
        assert report.total > 1500
        assert report.differ == []


def test_arrays_name_their_namespace(world, ranks):
    def program(group):
        x = dnp.ones(4)
        assert x.__array_namespace__() is dnp
        assert x.__array_namespace__(api_version="2024.12") is dnp
        with pytest.raises(ValueError, match="1999"):
            x.__array_namespace__(api_version="1999.12")
        assert dnp.__array_api_version__ == "2025.12"
        info = dnp.__array_namespace_info__()
        assert x.device == info.default_device()
        assert x.device in info.devices()
        assert x.to_device(x.device) is x
        assert dnp.zeros(3, device=x.device).device == x.device
        assert set(info.capabilities()) >= {"boolean indexing", "data-dependent shapes"}
        assert info.default_dtypes(device=x.device)["real floating"] == np.float64
        assert info.dtypes(kind=("bool", "signed integer"))["int8"] == np.int8
        with pytest.raises(ValueError, match="tpu"):
            info.dtypes(device="tpu")

    world.run(ranks, program)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_descending_order(world, ranks, axis):
    values = np.random.default_rng(1).integers(0, 4, (7, 5)).astype(float)
    wanted = np.argsort(-values, axis, stable=True)

    def program(group):
        for placement in (Shard(0), Replicate()):
            x = distarray.distribute(values, DeviceMesh(group, (ranks,)), [placement], src=None)
            found = dnp.argsort(x, axis=axis, descending=True)
            assert np.array_equal(found.full(), wanted)
            found = dnp.sort(x, axis=axis, descending=True)
            assert np.array_equal(found.full(), -np.sort(-values, axis))

    world.run(ranks, program)


def test_results_of_no_dimension_can_be_assigned_to(world, ranks):
    """Libraries get the standard's 0-d arrays; the scalars that programs get refuse it."""

    def program(group):
        x = dnp.arange(4.0, mesh=DeviceMesh(group, (ranks,)), placements=[Shard(0)])
        xp = Standard(dnp)
        total = xp.sum(x)
        for found in (total + 1, 2 * total, -total, total > 3, xp.sqrt(total), total[()], total**2):
            assert isinstance(found, DistArray)
        assert isinstance(xp.linalg.vector_norm(x), DistArray)
        assert {type(found) for found in xp.modf(x[0])} == {DistArray}
        total[()] = 2
        assert float(total) == 2.0
        total[dnp.asarray(True)] = dnp.nan
        assert np.isnan(total)
        assert total.dtype == np.float64
        assert isinstance(total.block, np.generic)

    world.run(ranks, program)


def test_extensions_are_modules():
    for name in ("linalg", "fft"):
        assert getattr(dnp, name) is importlib.import_module(f"distarray.numpy.{name}")
