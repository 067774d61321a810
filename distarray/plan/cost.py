"""Cost of moving an array from one layout to another; equal on every rank."""

from functools import lru_cache

from distarray.layout import Cut, Layout

__all__ = ["moved_elements", "stays"]


#: Cuts into more blocks than this are not compared block by block.
_MOST_BLOCKS = 64


@lru_cache(maxsize=4096)
def _overlap(a: Cut, b: Cut) -> float:
    """Return the share of `b`'s elements on the same rank in `a`; equal ranks cut both."""
    if a == b:
        return 1.0
    if not b.extent:
        return 1.0
    even = len(b.radix) == 1 and b.bounds is None
    if even and (abs(b.step) == 1 or b.parts > _MOST_BLOCKS) and a.is_shift_of(b):
        return _shifted_overlap(a, b)
    return max(0.0, _sampled_overlap(a, b))


def _shifted_overlap(a: Cut, b: Cut) -> float:
    """Return the share of indices that two shifted views of one base have in the same block."""
    block = -(-b.base // b.radix[0])
    step, shift = abs(b.step), abs(a.offset - b.offset)
    if shift >= block:
        return 0.0
    # An index of the base changes its block if, in the view with the lower offset, it is among the
    # last `shift` indices of its block.
    ends = [min(cut.offset, cut.offset + (cut.extent - 1) * cut.step) for cut in (a, b)]
    start = min(ends)
    stop = start + (b.extent - 1) * step + 1
    before, upto = [
        place // block * shift + max(0, place % block - (block - shift)) for place in (start, stop)
    ]
    return 1.0 - min(1.0, (upto - before) / step / b.extent)


def _sampled_overlap(a: Cut, b: Cut) -> float:
    """Return the share of `b`'s elements in the same block of `a`, from all blocks or a sample."""
    step = 1 if b.parts <= _MOST_BLOCKS else b.parts // (_MOST_BLOCKS // 4)
    kept = total = 0
    for part in range(0, b.parts, step):
        (low, high), (other_low, other_high) = b.interval(part), a.interval(part)
        total += high - low
        kept += max(0, min(high, other_high) - max(low, other_low))
    return kept / total if total else 1.0


def moved_elements(src: Layout, dst: Layout) -> float:
    """Estimate the number of elements that change rank, over all ranks.

    The number is exact for equal and replicated layouts, for shifted views, and for layouts that
    differ along one dimension of at most 64 blocks. Otherwise independent cuts are assumed to
    overlap evenly. The number is computed from the layouts alone, so every rank gets the same
    number.
    """
    if src is dst or src.is_replicated or not dst.size:
        return 0.0
    kept = 1.0
    for have, want in zip(src.cuts, dst.cuts, strict=True):
        if have.mesh_dims == want.mesh_dims:
            kept *= _overlap(have, want)
        else:
            shared = [m for m in have.mesh_dims if m in want.mesh_dims]
            for mesh_dim, size in zip(have.mesh_dims, have.radix, strict=True):
                if mesh_dim not in shared:
                    kept /= size
    for mesh_dim in src.ats:
        if src.placements[mesh_dim] != dst.placements[mesh_dim]:
            kept *= 0.0 if mesh_dim in dst.ats else 1.0 / src.mesh_shape[mesh_dim]
    return (1.0 - kept) * dst.size * _copies(dst)


@lru_cache(maxsize=4096)
def stays(src: Layout, dst: Layout) -> bool:
    """Return True if every rank already has its block of `dst`; the same on all ranks.

    Each dimension is compared by itself. If this comparison does not suffice, return False.

    Examples
    --------
    >>> from distarray.layout import Layout, Replicate, Shard
    >>> rows = Layout.chunked((4, 3), (2,), [Shard(0)])
    >>> whole = Layout.chunked((4, 3), (2,), [Replicate()])
    >>> stays(whole, rows), stays(rows, whole)
    (True, False)
    """
    if src is dst or src.is_replicated or not dst.size:
        return True
    if any(src.placements[m] != dst.placements[m] for m in src.ats):
        return False
    return all(_is_within(want, have) for have, want in zip(src.cuts, dst.cuts, strict=True))


def _is_within(inner: Cut, outer: Cut) -> bool:
    """Return True if each block of `inner` is within the same rank's block of `outer`."""
    if outer.parts == 1 or inner == outer:
        return True
    if inner.mesh_dims != outer.mesh_dims:
        return False
    for part in range(inner.parts):
        (start, stop), (low, high) = inner.interval(part), outer.interval(part)
        if start < stop and not low <= start < stop <= high:
            return False
    return True


def _copies(layout: Layout) -> int:
    """Return the number of ranks that hold each element."""
    copies = 1
    cut_dims = {m for cut in layout.cuts for m in cut.mesh_dims} | set(layout.ats)
    for mesh_dim, size in enumerate(layout.mesh_shape):
        if mesh_dim not in cut_dims:
            copies *= size
    return copies
