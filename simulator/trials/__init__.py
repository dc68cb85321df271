"""One trace under one policy, in virtual time, and what came of it."""
