"""This machine as a cluster: trainings are processes, under runners. How its GPUs are read does not
belong here, but in scheduler/gpus.
"""
