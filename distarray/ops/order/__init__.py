"""Order statistics by selection: median, percentile, quantile and their nan- versions."""

from distarray.ops.order.quantiles import (
    median,
    nanmedian,
    nanpercentile,
    nanquantile,
    percentile,
    quantile,
)

__all__ = ["median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile"]
