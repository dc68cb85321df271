"""Who should hold which GPUs: from a view to a plan. Pure."""
