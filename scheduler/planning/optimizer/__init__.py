"""The choice among configurations: their worth, prices, pairs. It works on arrays; nodes and single
GPUs belong in placement.py, and the rules of a policy in policies/."""
