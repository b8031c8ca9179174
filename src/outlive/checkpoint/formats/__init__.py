"""The formats of checkpoints that are read and written, each in a module of its own."""
