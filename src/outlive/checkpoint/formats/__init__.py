"""Checkpoints as others write them: each is opened as tensors by name, of which any part can be read."""
