"""Sharded data parallel: modules whose parameters are gathered only while they are used."""
