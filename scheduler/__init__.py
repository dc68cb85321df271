"""The scheduler. This file only keeps gRPC from writing text of foreign callers into its log."""

import os

# grpc logs what callers send unchanged, line breaks included. It reads this variable on import.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
