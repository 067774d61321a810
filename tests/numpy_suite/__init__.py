"""NumPy's own tests, those of the installed NumPy, with `distarray.numpy` as their `numpy`.

``python -m tests.numpy_suite --ranks 1,3`` runs them under mpiexec. `rebinding` gives the test
files their names, `plugin` keeps the ranks in step, `left_out` lists what is not meant to pass.
"""
