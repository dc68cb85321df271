"""Adapters of the ports Cluster and Source: Kubernetes, and this machine. They run jobs and report
what runs. What to run, and where, is decided elsewhere (scheduler/core, scheduler/planning).
"""
