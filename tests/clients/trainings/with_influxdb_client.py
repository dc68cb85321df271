"""As scripts for InfluxDB 2.x write, with its own client: URL, TOKEN, JOB."""

import sys

from influxdb_client import InfluxDBClient, Point, WritePrecision
from influxdb_client.client.write_api import SYNCHRONOUS
from influxdb_client.rest import ApiException

url, token, job = sys.argv[1:]
with InfluxDBClient(url, token, org="lab") as client:
    print("pings", client.ping(), client.version(), client.health().status)
    points = [
        Point("accuracy")
        .tag("job", job)
        .tag("model", "res net")
        .field("value", step / 10)
        .field("step", step)
        .time(1_600_000_000 + step, WritePrecision.S)
        for step in range(10)
    ]
    with client.write_api(write_options=SYNCHRONOUS) as api:
        api.write("training", record=points, write_precision=WritePrecision.S)
        try:
            api.write("training", record="accuracy value=")
        except ApiException as error:
            print("refused", error.status, error.message)
    with client.write_api() as api:  # in batches, in a thread
        api.write("training", record=Point("accuracy").tag("job", job).field("later", 1))
    try:
        client.query_api().query("buckets()")
    except ApiException as error:
        print("refused", error.status, error.message)
