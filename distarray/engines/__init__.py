"""The engines: algorithms over blocks, layouts and messages, which know no name of NumPy's.

The chapters in :mod:`distarray.ops` check a call as NumPy does, and call these.
"""
