"""A script as people write it: nothing in it knows of a relay."""

import tempfile
from pathlib import Path

import mlflow
from epochs import STEPS, train  # type: ignore[import-not-found]  # beside this script

mlflow.set_experiment("digits")
with mlflow.start_run(run_name="a training") as run:
    mlflow.log_params({"lr": 0.1, "model": "resnet", "layers": [64, 32]})
    mlflow.set_tag("team", "vision")
    for steps in train():
        for step in steps:
            mlflow.log_metric("loss", 1 / (step + 1), step=step)
        mlflow.log_metrics({"epoch_end": step, "accuracy": float("nan")}, step=step // STEPS)
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder, "weights.bin")
        weights.write_bytes(bytes(range(256)) * 1000)
        mlflow.log_artifact(str(weights), "models")
    mlflow.log_text("it went well", "notes/summary.txt")

client = mlflow.MlflowClient()
history = client.get_metric_history(run.info.run_id, "loss")
print("history", [each.step for each in history])
found = mlflow.search_runs(
    experiment_names=["digits"],
    filter_string="metrics.loss < 0.5 and params.model = 'resnet' and tags.team = 'vision'",
    output_format="list",
)
print("found", [each.info.run_id for each in found] == [run.info.run_id])
print("params", found[0].data.params["layers"], found[0].data.params["lr"])
