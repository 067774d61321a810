"""Parameters of which each rank holds a part: their layouts, states and optimizers."""
