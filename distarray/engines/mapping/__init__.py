"""Functions of the program's own on blocks, lines and elements."""
