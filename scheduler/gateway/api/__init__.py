"""The JSON API: what can be asked, and how each question becomes a call of the daemon."""
