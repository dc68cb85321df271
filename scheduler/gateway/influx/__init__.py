"""InfluxDB's HTTP as Telegraf, Grafana and the `influx` shell speak it: a closed part of InfluxQL
over the store of series, with the answers of InfluxDB 1.x, and its line protocol."""
