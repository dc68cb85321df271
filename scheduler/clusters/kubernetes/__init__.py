"""A Kubernetes cluster: runs are pods."""
