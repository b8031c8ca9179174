"""How things look: samples and progress in a terminal, pages for a browser."""
