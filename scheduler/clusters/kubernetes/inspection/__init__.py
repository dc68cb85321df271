"""The inspection of a whole cluster for scheduler-doctor. It changes nothing except canary pods.
What the findings mean is judged in scheduler/doctor, not here.
"""
