"""Linear algebra: factorizations, solvers, norms, products of many operands."""
