"""The results of a study as text, JSON, plots, and one page of HTML."""
