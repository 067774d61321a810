"""Functions of the caller's own, called on blocks, lines and elements."""
