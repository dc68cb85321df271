"""What Prometheus reads of the daemon. It shows what others know; nothing is decided here."""
