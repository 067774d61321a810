"""One parallel sort, and distinct elements."""
