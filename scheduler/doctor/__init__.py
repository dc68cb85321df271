"""scheduler-doctor: what is wrong with a machine or a cluster, and what to do. It changes nothing.

The state is collected elsewhere (clusters/kubernetes/inspection/survey.py, machine.py). Pure
functions here decide what it means; each returns findings.
"""
