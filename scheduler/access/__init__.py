"""Authentication: tokens, users, certificates. What a caller may do with a job is in api/."""
