"""Is a model folder whole, and will everybody read the same model from it? What others accept in silence is named."""
