"""The distributed tensor: its type, the ladder of dispatch, and rules by families of operators.

:mod:`distarray.torch.tensor.dist_tensor` has the type, :mod:`distarray.torch.tensor.ladder` the
way of an operator, :mod:`distarray.torch.tensor.table` what rules are and how to add one.
"""
