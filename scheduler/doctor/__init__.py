"""scheduler-doctor: what is wrong with where jobs are to run, and what to do. Changes nothing.

What is there is looked at elsewhere (clusters/kubernetes/inspection/survey.py, machine.py); what it
means is decided in pure functions, each of which returns findings.
"""
