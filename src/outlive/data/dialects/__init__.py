"""The shapes of rows that other tools write, one file for each family."""
