"""Rules for families of operators; :mod:`distarray.torch.tensor.table` describes rules."""
