"""The results of a study as text, JSON, plots and an HTML page."""
