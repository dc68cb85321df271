"""Files of jobs, and how those jobs really behave."""
