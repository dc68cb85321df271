"""Submits jobs from Python, and waits for them: see docs/python.md.

from epoch_scheduler_client import Client, JobSpec

client = Client.from_environment()
job = client.submit(JobSpec("demo", command=["python", "train.py"], num_gpus=1))
print(job.wait(), job.logs())
"""

from cli.command import CommandError as ClientError
from epoch_scheduler_client.client import Client
from epoch_scheduler_client.executor import JobExecutor, JobFailed
from epoch_scheduler_client.job import Job
from epoch_scheduler_client.job_spec import JobSpec

__all__ = ["Client", "ClientError", "Job", "JobExecutor", "JobFailed", "JobSpec"]
