"""Holders: placeholder pods that reserve GPUs, so that Kubernetes gives them to no other pod. The
pods of jobs do not belong here.
"""
