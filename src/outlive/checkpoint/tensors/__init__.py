"""Tensors that lie on disk, and what can be made of them without reading more than is asked for."""
