"""Scorers: an answer and what was expected → right or wrong. Used by evals and by rewards."""
