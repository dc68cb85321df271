"""As people write it: pytelegraf by both of its ways, and both clients of InfluxDB."""

import os

from epochs import STEPS, train  # type: ignore[import-not-found]  # beside this script
from influxdb import InfluxDBClient
from influxdb_client import InfluxDBClient as InfluxDB2Client
from influxdb_client import Point
from influxdb_client.client.write_api import SYNCHRONOUS
from telegraf import HttpClient, TelegrafClient

host = os.environ["JOBMONITOR_TELEGRAF_HOST"]
port = int(os.environ["JOBMONITOR_TELEGRAF_PORT"])
begin = int(os.environ["BEGIN"])
client = TelegrafClient(host=host, port=port)
by_http = HttpClient(host=host, port=port, tags={"way": "http"})

client.metric("test_metric", 123)
client.metric("test_metric", {"value_a": 100, "value_b": 100, "value_c": True})
client.metric("test_metric", 123, tags={"server_name": "my-server"})

influx = InfluxDBClient(host=host, port=port, database="training", gzip=True)
influx.create_database("training")
print("version", influx.ping())
influx2 = InfluxDB2Client(url=f"http://{host}:{port}", token="any", org="any")
print("pong", influx2.ping())
write_api = influx2.write_api(write_options=SYNCHRONOUS)

for steps in train():
    for step in steps:
        client.metric(
            "training_loss",
            {"iteration": step, "value": 1 / (step + 1)},
            tags={"host": "iccluster45", "user": "vogels", "experiment_id": 10},
        )
        client.metric("odd", {"note": f'a "quoted" 5" step {step}', "value": step})
        client.metric("odd", {"loss": float("nan"), "iteration": step})
        by_http.metric("by_http", step)
        point = {"measurement": "by_client", "tags": {"rank": 0}, "fields": {"step": step}}
        influx.write_points([point, {**point, "fields": {"text": 'with "quotes"'}}])
    lines = "".join(f"by_lines step={step}i {begin + step}\n" for step in steps)
    influx.write_points(
        [*lines.splitlines(), "this is no line"], protocol="line", time_precision="s"
    )
    write_api.write("training", record=[Point("by_client_2").field("step", step) for step in steps])
    write_api.write("training", record=f"by_client_2 epoch={step // STEPS}i")
influx.close()
influx2.close()
