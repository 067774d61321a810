"""Memory shared between blocks and tensors, and conversions to and from torch."""
