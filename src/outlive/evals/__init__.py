"""Asset 3, the evals: fixed questions, and scores that come with an interval."""
