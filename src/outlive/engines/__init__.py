"""Who turns the crank: Outlive's own loop, and one folder per framework."""
