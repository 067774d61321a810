"""Scaling studies: runs on several numbers of ranks, laws of growth, and extrapolation."""
