"""A Kubernetes cluster as an adapter: runs are pods. All requests to an API server belong here; the
judgement of what scheduler-doctor finds does not.
"""
