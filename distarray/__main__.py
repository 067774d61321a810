"""``mpiexec -n P python -m distarray script.py [args]``: run a NumPy program distributed."""

from distarray.runner.alike import same_order
from distarray.runner.files import FILES

if __name__ == "__main__":
    same_order()
    FILES.install()  # before NumPy, which keeps `open` in tables of its own

    from distarray.runner.main import main

    main()
