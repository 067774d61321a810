"""The parallel sort, and distinct elements."""
