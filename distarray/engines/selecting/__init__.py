"""Order statistics without sorting: selection, quantiles, weighted quantiles."""
