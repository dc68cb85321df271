"""Waits for a debugger if `run-scheduler --debug_wait PORT` says so, and then trains as ever."""

import os

from kubernetesdlprofile import kubeprofiler


def main() -> None:
    wait_for_debugger()
    loss = 1.0
    with kubeprofiler.KubeProfiler(epochs=3) as api:
        for epoch in api.epochs():
            loss = loss / 2  # a good line for a breakpoint
            print(f"epoch {epoch + 1}: loss {loss}", flush=True)


def wait_for_debugger() -> None:
    """Whoever connects can run code here, so it listens for this machine only."""
    if port := os.environ.get("DEBUG_WAIT_PORT"):
        import debugpy

        debugpy.listen(("127.0.0.1", int(port)))
        print(f"waits for a debugger at port {port}", flush=True)
        debugpy.wait_for_client()


if __name__ == "__main__":
    main()
