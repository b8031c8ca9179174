"""Asset 2, the checkpoints: folders that other tools open, each with a manifest that says it is whole."""

from outlive.checkpoint.write import save

__all__ = ["save"]
