"""Argo's HTTP for its clients: a workflow is shown as what its jobs are. It keeps no state."""
