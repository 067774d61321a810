"""Sharded data parallel: a module whose parameters are gathered while it computes."""
