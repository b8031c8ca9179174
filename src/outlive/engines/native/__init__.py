"""Outlive's own engine: PyTorch, one readable loop (loop.py)."""
