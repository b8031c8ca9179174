"""How chat templates run: in a sandbox, with a meter, and, where masks are made, with the origin of every character."""
