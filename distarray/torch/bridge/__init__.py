"""Memory shared between blocks and tensors, and what goes over to torch and back."""
