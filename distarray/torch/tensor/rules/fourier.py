"""Fourier transforms: along dimensions that every rank has whole, the others cut."""

from distarray.layout import Cut
from distarray.torch.tensor.aligning import elsewhere, guarded, is_spread
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, rule


@rule("aten._fft_c2c", "aten._fft_r2c", "aten._fft_c2r")
def _transformed(call: Call) -> Decision | None:
    """Move a cut along a transformed dimension to another dimension."""
    dims = call.dims()
    layout = elsewhere(call.first.layout, dims)
    if call.results is None or not any(is_spread(cut) for cut in layout.cuts):
        return None
    cuts = [
        Cut.whole(extent) if dim in dims else layout.cuts[dim]
        for dim, extent in enumerate(call.shape)
    ]
    return guarded(call, [layout], [layout.with_cuts(cuts)])
