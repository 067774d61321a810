"""Calls of user functions on blocks, lines and elements."""
