"""The scheduler. Nothing is done here but to keep strangers from writing its log."""

import os

# grpc tells what it hears as it came, line breaks and all, and reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
