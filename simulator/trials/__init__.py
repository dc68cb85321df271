"""One trace under one policy in virtual time, and its result."""
