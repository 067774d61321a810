"""How a program scales: runs on several numbers of ranks, what grows how, and what follows."""
