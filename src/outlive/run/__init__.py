"""The contract, as plain data: run file, run folder, lock, metrics, errors, hashes, atomic files."""
