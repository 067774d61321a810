"""The distributed tensor: its type, the dispatcher, and rules for families of operators.

:mod:`distarray.torch.tensor.dist_tensor` defines the type, :mod:`distarray.torch.tensor.ladder` the
dispatch of an operator, and :mod:`distarray.torch.tensor.table` rules and how to add a rule.
"""
