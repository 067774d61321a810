"""Order statistics by selection, without a full sort: quantiles and weighted quantiles."""
