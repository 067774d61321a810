"""Faults planted in jobs: ``python -m tests.faults`` plants all, the tests the quick ones."""
