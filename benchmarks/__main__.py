"""``python -m benchmarks``: measure and report."""

from benchmarks.run import main

main()
