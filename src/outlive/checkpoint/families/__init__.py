"""What the tensors of each model family are called, their shapes, and how their layouts become each other."""
