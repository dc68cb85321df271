"""Runs beside the command of a workflow's step: brings what other steps gave, keeps what it gives.

It is copied into jobs and runs there, in any Python from 3.7 on, so it is the standard library and
its own modules.
"""
