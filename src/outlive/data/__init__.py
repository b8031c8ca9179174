"""Asset 1, the data: rows → conversations → samples → store → plan of packs → batches. No torch below this line."""
