"""Rehearsal of operations: simulate each rank on blocks without values; nothing is sent."""
