"""Placements for tests of creation, and a world in which nothing may be sent."""

from hypothesis import strategies as st

import distarray
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Replicate, Shard
from distarray.testing import mesh_shapes

DTYPES = ("f8", "f4", "f2", "i8", "i4", "i1", "u1", "u8", "c16", "c8", "?", "g")


@st.composite
def places(draw, ranks, ndim):
    """A mesh shape and placements, or the default of both."""
    mesh_shape = draw(mesh_shapes(ranks))
    choices = [Replicate(), *[Shard(d) for d in range(-ndim, ndim)]]
    placed = [draw(st.sampled_from(choices)) for _ in mesh_shape]
    return None if draw(st.booleans()) else (mesh_shape, placed)


def keywords(place, group):
    """`mesh=` and `placements=` of a drawn place; the defaults cut whatever can be cut."""
    if place is None:
        return {}
    return {"mesh": DeviceMesh(group, place[0]), "placements": place[1]}


def silently(world, ranks, program):
    """Run a program in which nothing may be sent, with a default that cuts small arrays too."""

    def body(group):
        DeviceMesh(group, (group.size,))  # made before: making a mesh is collective
        for shape in {
            (a, group.size // a) for a in range(1, group.size + 1) if group.size % a == 0
        }:
            DeviceMesh(group, shape)
        with config.override(replicate_below=0), distarray.forbid_communication():
            program(group)

    world.run(ranks, body)
