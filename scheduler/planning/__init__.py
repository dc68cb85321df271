"""Which jobs should hold which GPUs: from a view to a plan. Pure. Safety does not depend on it:
what a plan may do is checked in core/adopt.py. Forecasts for users are in outlook/."""
