"""As scripts for InfluxDB 1.x write and ask, with its own client: HOST, PORT, TOKEN, JOB."""

import sys

from influxdb import InfluxDBClient
from influxdb.exceptions import InfluxDBClientError

host, port, token, job = sys.argv[1:]
with InfluxDBClient(host, int(port), "anyone", token, "training", retries=1) as client:
    print("version", client.ping())
    client.create_database("training")
    print("databases", [each["name"] for each in client.get_list_database()])
    points = [
        {
            "measurement": "loss",
            "tags": {"job": job, "model": "res net"},
            "time": 1_600_000_000 + step,
            "fields": {"value": 1 / (step + 1), "step": step, "note": 'a "b"', "ok": True},
        }
        for step in range(25)
    ]
    print("written", client.write_points(points, time_precision="s", batch_size=10))
    client.write(
        ["loss,model=x value=7 1600000100"], {"db": "training", "precision": "s"}, 204, "line"
    )
    found = client.query("SELECT value, step, note FROM loss WHERE model = 'res net'", epoch="s")
    rows = list(found.get_points("loss"))
    print("rows", len(rows), rows[-1])
    chunks = client.query("SELECT value FROM loss", chunked=True, chunk_size=10)
    print("in chunks", [len(list(chunk.get_points())) for chunk in chunks])
    means = client.query("SELECT mean(value) FROM loss GROUP BY model")
    print("mean", [each["mean"] for each in means.get_points(tags={"model": "x"})])
    print("measurements", client.get_list_measurements())
    print("tags", list(client.query("SHOW TAG KEYS FROM loss").get_points()))
    try:
        client.query("SELECT foo(value) FROM loss")
    except InfluxDBClientError as error:
        print("refused", error.code, str(error.content).strip())
