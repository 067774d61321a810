"""What notebooks show of arrays and meshes; nothing is sent for it."""

from html.parser import HTMLParser

import pytest

import distarray
import distarray.numpy as np
from distarray.comm.ledger import forbid_communication
from distarray.config import config


class Balanced(HTMLParser):
    """Raises where elements do not nest."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.words = ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += f" {data}"


def words_of(html):
    parser = Balanced()
    parser.feed(html)
    assert not parser.open
    return parser.words


def test_an_array_shows_what_it_is_and_this_ranks_part(world, ranks):
    def program(group):
        x = np.zeros((12, 5)).redistribute(placements=[distarray.Shard(0)])
        with forbid_communication(), config.override(print_gathered=True):
            return group.rank, group.size, words_of(x._repr_html_())

    for found in world.run(ranks, program):
        if found is not None:
            rank, size, text = found
            start, stop = x_rows(rank, size)
            assert "(12, 5)" in text
            assert "float64" in text
            assert "480 B" in text
            assert f"rank {rank} of {size}, [{start}:{stop}, 0:5], {40 * (stop - start)} B" in text


def x_rows(rank, size):
    rows = -(-12 // size)
    return min(12, rank * rows), min(12, (rank + 1) * rows)


def test_pending_folds_and_numbers_show_themselves(world, ranks):
    def program(group):
        mesh = distarray.default_mesh()
        x = distarray.from_local(np.ones(3).to_local(), mesh, [distarray.Partial()])
        with forbid_communication():
            return words_of(x._repr_html_()), words_of(mesh._repr_html_())

    for found in world.run(ranks, program):
        if found is not None:
            assert "Partial('sum')" in found[0]
            assert f"({ranks},)" in found[1]


def test_visualize_draws_all_of_them(world, ranks, tmp_path_factory):
    path = tmp_path_factory.mktemp("picture") / "x.svg"

    def program(group):
        x = np.zeros((12, 5)).redistribute(placements=[distarray.Shard(1)])
        with forbid_communication():
            pictures = [distarray.visualize(y) for y in (x, x.layout, x.mesh, x.placements[0])]
        if group.rank == 0:
            pictures[0].save(path)
        return [picture.svg for picture in pictures], pictures[0]._repr_html_(), repr(pictures[0])

    for found in world.run(ranks, program):
        if found is not None:
            svgs, html, text = found
            assert len(set(svgs)) == 4
            assert html == svgs[0]
            assert ".save(path)" in text
    if path.exists():
        assert path.read_text().startswith("<svg xmlns")


def test_visualize_says_what_it_takes():
    with pytest.raises(TypeError, match="a DistArray, a Layout, a DeviceMesh or a placement, not"):
        distarray.visualize([1, 2])
