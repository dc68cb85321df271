"""The gateway: pages, JSON and events over HTTP, for browsers and programs. A client of the daemon
that holds no right of its own."""
