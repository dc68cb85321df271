"""What is decided, and by which rules: the nouns, the loop, and the pure functions it calls."""
