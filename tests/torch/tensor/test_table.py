"""The table of rules names operators that there are, each in the file of its family."""

from __future__ import annotations

import torch

from distarray.torch.tensor.table import families, row_of

#: Operators that the oldest torch does not have yet.
LATER = {"aten._foreach_clone"}


def test_every_name_is_an_operator_s():
    for names in families().values():
        assert names
        for name in names:
            _, packet, *overload = name.split(".")
            aten = torch.ops.aten
            found = getattr(aten, packet, None) or getattr(aten, f"{packet}_", None)
            if found is None and name in LATER:
                continue
            assert found is not None, name
            assert not overload or hasattr(found, overload[0]), name


def test_a_name_leads_to_its_row():
    aten = torch.ops.aten
    assert row_of(aten.sum.dim_IntList).rule is row_of(aten.sum.IntList_out).rule
    assert row_of(aten.exp.default).rule is row_of(aten.exp_.default).rule
    assert row_of(aten.squeeze_.dim).apart
    assert row_of(aten.nonzero_static.default).rule is None
