"""A document in Argo's language, and parameters, become jobs. Pure."""
