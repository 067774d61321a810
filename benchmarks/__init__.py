"""How fast it is: a table of cases, measured beside NumPy, Heat and PyTorch's DTensor."""
