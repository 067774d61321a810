"""Order statistics without sorting: selection, quantiles, weights."""
