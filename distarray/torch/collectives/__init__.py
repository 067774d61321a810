"""Tensors sent between ranks, with and without gradients."""
