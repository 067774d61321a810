"""Engines: algorithms over blocks, layouts and messages, independent of NumPy's function names.

The modules of :mod:`distarray.ops` check the arguments as NumPy does, then call an engine.
"""
