"""The names that other tools have for our keys, and those of theirs that have no counterpart here."""
