"""The model as the trainer and the evals share it: loading, attention per document, TargetLoss, decoding."""
