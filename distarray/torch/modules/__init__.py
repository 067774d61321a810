"""Modules made parallel: plans and their styles, layers that compute with parts, replicas."""
