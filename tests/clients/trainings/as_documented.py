"""The lines of the job monitor's document, with the host and port that a job is told."""

import os

from telegraf import TelegrafClient

client = TelegrafClient(
    host=os.environ["JOBMONITOR_TELEGRAF_HOST"], port=int(os.environ["JOBMONITOR_TELEGRAF_PORT"])
)
client.metric("training_loss", 0.46)  # fast & non-blocking
client.metric("test_metric", 123)
client.metric("test_metric", {"value_a": 100, "value_b": 100, "value_c": True})
client.metric("test_metric", 123, tags={"server_name": "my-server"})
client.metric("note", 'say "hi"')
