"""Traces (files of jobs), and how their jobs really behave."""
