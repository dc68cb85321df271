"""Who asks, and how we know: tokens, users, certificates."""
