"""Interpolation between sample points that no rank holds all of."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.ops import interpolating
from distarray.testing import assert_matches, mesh_shapes, recipes, shapes


@settings(max_examples=10)
@given(data=st.data())
def test_sample_points_that_are_cut(world, ranks, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    count = data.draw(st.integers(1, 30))
    points = np.sort(rng.integers(0, 20, count)).astype(float)
    heights = rng.integers(-9, 9, count) * data.draw(st.sampled_from([1, 1.5, 1j]))
    wanted = rng.integers(-3, 46, data.draw(shapes(max_dims=2))) / 2
    if wanted.ndim and wanted.size > 2:
        wanted.flat[1] = np.nan
    mesh_shape = data.draw(mesh_shapes(ranks))
    kinds = ("plain", "view", "ragged")
    layouts = [data.draw(recipes(v.shape, mesh_shape, v.dtype, kinds)) for v in (points, heights)]
    placed = data.draw(recipes(wanted.shape, mesh_shape, wanted.dtype, (*kinds, "transposed")))
    ends = data.draw(st.sampled_from([(), (-1.0, 5.0), (None, 7)]))

    def program(group):
        mesh = DeviceMesh(group, mesh_shape)
        x = placed.build(np.asarray(wanted), mesh)
        xp, fp = [way.build(v, mesh) for way, v in zip(layouts, (points, heights), strict=True)]
        expected = np.interp(wanted, points, heights, *ends)
        found = np.interp(x, xp, fp, *ends)
        expected = expected if wanted.ndim else np.asarray(expected)[()]
        assert_matches(found, expected)
        if xp.layout.cuts[0].parts > 1:
            with config.override(gather_limit=0):
                np.interp(x, xp, fp, *ends)
            assert_matches(np.interp(x, xp, heights.tolist(), *ends), expected)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpolating, "GATHERED_BELOW", 0)
        world.run(ranks, program)
