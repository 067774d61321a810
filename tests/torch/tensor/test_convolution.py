"""Convolutions, pooling and resizing of distributed tensors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

import distarray.torch as dt
from distarray import DeviceMesh, Replicate, Shard
from tests.torch.models import drawn, line
from tests.torch.tensor.comparing import compare_drawn, runs_without_gather

#: What is called with one tensor of 4 x 2 x 6 x 5.
POOLS = {
    "max_pool2d": lambda x: functional.max_pool2d(x, 2),
    "max_pool1d": lambda x: functional.max_pool1d(x[..., 0], 3, 1),
    "avg_pool2d": lambda x: functional.avg_pool2d(x, (3, 2), 1, (1, 0)),
    "avg_pool1d": lambda x: functional.avg_pool1d(x[:, :, 2], 2),
    "adaptive_avg_pool2d": lambda x: functional.adaptive_avg_pool2d(x, (2, 3)),
    "global average": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "adaptive_max_pool2d": lambda x: functional.adaptive_max_pool2d(x, 2),
    "avg_pool3d": lambda x: functional.avg_pool3d(x.unsqueeze(0).clone(), (1, 2, 2)),
    "nearest": lambda x: functional.interpolate(x, scale_factor=2),
    "bilinear": lambda x: functional.interpolate(x, (3, 7), mode="bilinear"),
    "reflect": lambda x: functional.pad(x, (1, 2, 0, 3), mode="reflect"),
    "replicate": lambda x: functional.pad(x, (1, 0, 2, 1), mode="replicate"),
    "pixel_unshuffle": lambda x: functional.pixel_unshuffle(x[..., :4], 2),
}
#: Weights are made of the images, so that they are cut as these are.
CONVOLUTIONS = {
    "conv2d": lambda x: functional.conv2d(x, x[:3, :, :3, :2], x[:3, 0, 0, 0], padding=1),
    "conv2d of one": lambda x: functional.conv2d(x[1], x[:3, :, :3, :2]),
    "conv2d of groups": lambda x: functional.conv2d(x, x[:, :1, :2, :2], groups=2, stride=2),
    "conv1d": lambda x: functional.conv1d(x[:, :, 1], x[:3, :, 2, :3], dilation=2),
    "same": lambda x: functional.conv1d(x[:, :, 1], x[:3, :, 2, :3], padding="same"),
    "transposed": lambda x: functional.conv_transpose2d(x, x[:2, :, :2, :3], x[0, :, 0, 0]),
    "conv3d": lambda x: functional.conv3d(x.unsqueeze(1), x[:3, None, :2, :2, :2]),
}
ALL = POOLS | CONVOLUTIONS


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
def test_images(world, ranks, name, data):
    compare_drawn(world, ranks, data, drawn(4, 2, 6, 5).numpy(), ALL[name])


@pytest.mark.counts(lambda n: n > 1)
@pytest.mark.parametrize("name", [name for name in ALL if name not in ("conv2d of one",)])
def test_nothing_gathers(world, ranks, name):
    dims = (0,) if name == "conv2d of groups" else (0, 2, 3)
    runs_without_gather(world, ranks, drawn(4, 2, 6, 5).numpy(), ALL[name], dims)


PLACES = [Shard(0), Shard(1), Replicate()]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weight_place", PLACES, ids=str)
@pytest.mark.parametrize("image_place", PLACES, ids=str)
def test_weights_of_their_own(world, ranks, image_place, weight_place, transposed):
    shapes = [(3, 4, 6, 6), (4, 5, 2, 3) if transposed else (5, 4, 2, 3), (5,)]
    values = [drawn(*shape, seed=n) for n, shape in enumerate(shapes)]
    call = functional.conv_transpose2d if transposed else functional.conv2d
    plain = [x.clone().requires_grad_() for x in values]
    wanted = call(*plain)
    wanted.square().sum().backward()

    def program(group):
        for mesh in (line(group), DeviceMesh(group, (1, group.size))):
            ahead = [Replicate()] * (mesh.ndim - 1)
            places = [image_place, weight_place, Replicate()]
            found = [
                dt.distribute_tensor(x, mesh, [*ahead, place], src=None).requires_grad_()
                for x, place in zip(values, places, strict=True)
            ]
            result = call(*found)
            torch.testing.assert_close(result.detach().full_tensor(), wanted.detach())
            result.square().sum().backward()
            for x, other in zip(found, plain, strict=True):
                assert x.grad.placements == x.placements
                torch.testing.assert_close(x.grad.full_tensor(), other.grad)

    world.run(ranks, program)
