"""What is learned: losses as pure functions, the loss rule, adapters."""
