"""Rules by families of operators; :mod:`distarray.torch.tensor.table` says what a rule is."""
