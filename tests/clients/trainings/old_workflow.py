"""What `workflow.py` of crisp does, rebuilt from its description: that program itself is not to be
had. It stores what it starts in S3, posts the document as it is, and sends no header of its own."""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import requests
import yaml  # type: ignore[import-untyped]

parser = argparse.ArgumentParser()
parser.add_argument("--server", "-s")
parser.add_argument("--run", "-r")
parser.add_argument("--params", "-p", type=json.loads, default={})
parser.add_argument("--name", "-n", default="")
parser.add_argument("-image", default="crisptrain")
parser.add_argument("-credentails", default="creds.yaml")
parser.add_argument("-objectserver", default="store")
parser.add_argument("-testfile", default="tests.yaml")
args = parser.parse_args()

creds = yaml.safe_load(Path(args.credentails).read_text())
s3def = next(each for each in creds["s3"] if each["name"] == args.objectserver)
argo = next(each for each in creds["argo"] if each["name"] == args.server)
s3: Any = boto3.client(
    "s3",
    endpoint_url=f"{'https' if s3def['tls'] else 'http'}://{s3def['address']}",
    aws_access_key_id=s3def["access key"],
    aws_secret_access_key=s3def["secret key"],
    region_name="us-east-1",
)
bucket = s3def["sets"]["test"]["bucket"]
try:
    tests = yaml.safe_load(s3.get_object(Bucket=bucket, Key=args.testfile)["Body"].read())
except s3.exceptions.NoSuchKey:
    tests = []

workflow = yaml.safe_load(Path(args.run).read_text())
parameters = {each["name"]: each for each in workflow["spec"]["arguments"]["parameters"]}
for name, value in args.params.items():
    if name in parameters:  # others are ignored without a word
        parameters[name]["value"] = json.dumps(value) if isinstance(value, dict) else value

url = (
    f"{'https' if argo['tls'] else 'http'}://{argo['address']}/api/v1/workflows/{argo['namespace']}"
)
resp = requests.post(url, json={"workflow": workflow}, verify=False)
if not resp.ok:
    print(f"error {resp.status_code} {resp.text}")
    sys.exit(-1)
job = resp.json()["metadata"]["name"]
stem = Path(args.run).stem
s3.put_object(
    Bucket=bucket, Key=f"workflows/{args.name}_{stem}.yaml", Body=yaml.safe_dump(workflow)
)
about = {"name": args.name, "when": datetime.now(UTC).isoformat(), "server": args.server}
tests.append({**about, "image": args.image, "workflow": args.run, "job": job})
s3.put_object(Bucket=bucket, Key=args.testfile, Body=yaml.safe_dump(tests))
print(f"job: {job}")
