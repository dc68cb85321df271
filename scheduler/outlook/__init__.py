"""What users are told about a job's future: forecasts, remedies, speeds. It is computed when a user
asks; no decision depends on it."""
