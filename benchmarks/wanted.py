"""The published figures: their labels, formats and goals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MB = 1e6 / 2**20  # in MiB


@dataclass(frozen=True, slots=True)
class Figure:
    part: str  # of `make bench` or `make bench-kube`
    key: str
    what: str
    words: str = "{:,.3g}"
    least: float | None = None
    most: float | None = None
    command: str = ""  # empty: the command of the part

    def found(self, figures: Mapping[str, Mapping[str, Any]]) -> float | None:
        """Any: a benchmark also prints values that are not figures."""
        found: float | None = figures.get(self.part, {}).get(self.key)
        return found

    def told(self, figures: Mapping[str, Mapping[str, Any]]) -> str:
        """The value, with its interval if the benchmark has one."""
        keys = (self.key, f"{self.key}_low", f"{self.key}_high")
        values = [figures.get(self.part, {}).get(key) for key in keys]
        value, low, high = (None if v is None else self.words.format(v) for v in values)
        return "not measured" if value is None else f"{value} ({low} to {high})" if low else value

    def met(self, value: float) -> bool:
        enough = self.least is None or value >= self.least
        return enough and (self.most is None or value <= self.most)

    def wanted(self) -> str:
        least, most = (
            None if limit is None else self.words.format(limit) for limit in (self.least, self.most)
        )
        if least and most:
            return f"{least} to {most}"
        return f"at least {least}" if least else f"at most {most}" if most else ""

    def called(self) -> str:
        return self.command or f"python -m benchmarks.{self.part} --json"


PER_CENT, SECONDS, MS, COUNT = "{:.2%}", "{:.3g} s", "{:,.1f} ms", "{:,.0f}"
PARTS = "{:.2f} %"
THEIRS = "{:.0%} of theirs"
SMALL = "python -m benchmarks.decision --gpus 64 --jobs 160 --json"
LARGE = "python -m benchmarks.decision --gpus 20000 --jobs 50000 --json"

_EPOCHS = {
    "crash": ("epochs_lost", "epochs lost"),
    "kills": ("uncounted", "epochs done but not counted"),
}
_FULL = (  # of both benchmarks that kill, with `--full`
    ("kills", "kills with full logs and the disk at its reserve", None),
    ("lost", "jobs lost by that", 0),
    ("doubled", "runs started twice", 0),
    ("taken_when_low", "submissions accepted below the reserve", 0),
    ("logs", "logs compared with what was written to them", None),
    ("logs_wrong", "those that lack what they must keep, or do not say what they lack", 0),
)

DAEMON = (
    Figure(
        "reports",
        "reports_per_second",
        "durable epoch reports of 8 trainings, per second",
        COUNT,
        least=3_000,
    ),
    Figure("reports", "p99_ms", "the 99th percentile of their latency", "{:.0f} ms", most=100),
    Figure("reports", "rss_mib", "the daemon's memory during that", "{:.0f} MiB", most=150 * MB),
    Figure("reports", "calls_per_second", "the same with one report per call, per second", COUNT),
    Figure(
        "submissions",
        "submissions_per_second",
        "durable submissions of 4 clients, one by one, per second",
        COUNT,
        least=200,
    ),
    Figure(
        "submissions",
        "state_cpu_seconds",
        "CPU of `scheduler-state` among 100,000 ended jobs",
        SECONDS,
        most=0.3,
    ),
    Figure("submissions", "state_daemon_cpu_seconds", "the daemon's CPU for that", SECONDS),
    Figure(
        "events",
        "cpu_share",
        "50 watchers of 100 jobs that report each second: the daemon's CPU for it, of a core",
        PER_CENT,
        most=0.05,
    ),
    Figure(
        "events",
        "delay_p99_ms",
        "how late a watcher has a report: 99th percentile",
        "{:,.0f} ms",
        most=1_000,
    ),
    Figure("events", "restarts", "restarts of the daemon (`kill -9`) under watchers", COUNT),
    Figure("events", "gaps", "facts that a stream missed by that", COUNT, most=0),
    Figure("events", "repeated", "facts that a stream repeated", COUNT, most=0),
    Figure("events", "stale", "jobs that it left as they were before", COUNT, most=0),
    Figure(
        "open_pages",
        "cpu_share",
        "50 open pages, 100 jobs that report, 10,000 live: CPU of daemon and gateway, of a core",
        PER_CENT,
        most=0.05,
    ),
    Figure("open_pages", "delay_p99_ms", "how late a page has a report", "{:,.0f} ms", most=1_000),
    Figure(
        "open_pages",
        "busy_ratio",
        "reports per second beside a busy gateway, of those without it",
        "{:.2f}",
        least=0.9,
    ),
    Figure("open_pages", "busy_p99_ms", "the 99th percentile of their latency", "{:,.0f} ms"),
    Figure("open_pages", "calm_p99_ms", "the same without it", "{:,.0f} ms"),
    Figure("open_pages", "killed_p99_ms", "beside a gateway killed again and again", "{:,.0f} ms"),
    Figure("open_pages", "kills", "how often that was killed", COUNT),
    Figure("page", "list_kb", "first page of a list of 10,000 live jobs", "{:.0f} kB", most=200),
    Figure("page", "list_cpu_ms", "CPU of daemon and gateway for it", MS, most=300.0),
    Figure("page", "first_paint_kb", "loaded until Chromium shows it, scripts too", "{:.0f} kB"),
    Figure("page", "interactive_ms", "until it can be used", "{:,.0f} ms"),
    Figure(
        "series",
        "busy_points_per_second",
        "durable points of trainings, beside a daemon to which 100 jobs report, per second",
        COUNT,
        least=20_000,
    ),
    Figure("series", "points_per_second", "the same beside an idle daemon", COUNT),
    Figure(
        "series",
        "bytes_per_point",
        "a point on disk when it is packed: time, step, and a loss of 32 bits",
        "{:.1f} bytes",
        most=8,
    ),
    Figure("series", "group_by_ms", "`GROUP BY time` over 10,000,000 points", MS, most=200),
    Figure("series", "curves_ms", "these points as curves of 10 jobs", MS),
    Figure("series", "jobs_ms", "curves of 50 jobs with 100,000 points each", MS, most=1_000),
    Figure("series", "rss_mib", "the gateway's memory after that", "{:.0f} MiB"),
    Figure("series", "kills", "how often the gateway was killed (`kill -9`) meanwhile", COUNT),
    Figure("series", "lost", "points lost by that, of those acknowledged", COUNT, most=0),
    Figure("series", "doubled", "points that are there twice", COUNT, most=0),
    Figure(
        "compare",
        "compare_ms",
        "curves of 50 jobs with 100,000 points each in Chromium, from the address on",
        "{:,.0f} ms",
        most=1_000,
    ),
    Figure("compare", "redraw_ms", "all of them drawn again", "{:,.0f} ms"),
    Figure("compare", "search_ms", "a search in the table of 500 jobs", "{:,.0f} ms", most=100),
    Figure("compare", "typed_ms", "from a key to its rows; 100 ms of it wait", "{:,.0f} ms"),
    Figure("compare", "experiments_ms", "that table in Chromium", "{:,.0f} ms"),
    Figure(
        "package", "unchanged_seconds", "`--code` with 1,000 files, none changed", SECONDS, most=0.3
    ),
    Figure("package", "one_changed_seconds", "the same with one changed file", SECONDS),
    Figure("package", "new_mb_per_second", "a new file of 1 GB, per second", "{:,.0f} MB"),
    Figure("package", "disk_mb_per_second", "the disk takes, per second", "{:,.0f} MB"),
    Figure("package", "unpack_seconds", "1,000 files made on a node", SECONDS),
    Figure("submit_many", "submit_many_seconds", "1,000 jobs in one call", SECONDS, most=1),
    Figure("submit_many", "sweep_command_seconds", "the same as a sweep, by the command", SECONDS),
    Figure("connect", "up_mb_s", "to a port beside a job, per second", "{:,.0f} MB", least=200),
    Figure("connect", "down_mb_s", "from it", "{:,.0f} MB", least=200),
    Figure("connect", "tls_down_mb_s", "the same, encrypted", "{:,.0f} MB"),
    Figure("connect", "others_ms", "another user's call meanwhile, 99th percentile", MS),
    Figure(
        "search",
        "shipped_tpe_asha_cost",
        "GPU time of `--search tpe --prune asha` until as good as 40 random trials",
        THEIRS,
        most=0.4,
    ),
    Figure("search", "shipped_random_asha_cost", "the same with `--search random`", THEIRS),
    Figure("search", "shipped_tpe_cost", "the same with `tpe`, without pruning", THEIRS),
    Figure("search", "real_cost", "`tpe` and `asha` on a real daemon", THEIRS),
    Figure("search", "late_tpe_asha_cost", "where early epochs tell little, the same", THEIRS),
    Figure("search", "late_random_asha_cost", "there with `--search random`", THEIRS),
    Figure("search", "late_tpe_cost", "there with `tpe`, without pruning", THEIRS),
    Figure("cli", "cpu_ms", "CPU of `scheduler-state`", "{:.0f} ms", most=120),
    Figure("cli", "context_cpu_ms", "the same with 20 contexts", "{:.0f} ms", most=120),
    Figure("cli", "ratio", "the same, as a multiple of `python -c pass`", "{:.1f}"),
    Figure("crash", "kills", "how often the daemon was killed (`kill -9`) under load", COUNT),
    Figure("crash", "lost", "jobs lost by that", COUNT, most=0),
    Figure("crash", "doubled", "runs started twice", COUNT, most=0),
    Figure("crash", "epochs_lost", "epochs lost", COUNT, most=0),
    Figure("crash", "epochs", "epochs in total", COUNT),
    Figure(
        "kills",
        "kills",
        "how often the daemon, a training or a runner was killed, or the network was cut",
        COUNT,
    ),
    Figure("kills", "lost", "jobs lost by that", COUNT, most=0),
    Figure("kills", "doubled", "runs started twice", COUNT, most=0),
    Figure("kills", "fell", "how often a job's count of epochs decreased", COUNT, most=0),
    Figure("kills", "uncounted", "epochs done but not counted", COUNT, most=0),
    Figure("kills", "repeated_most", "most epochs done twice after one kill", COUNT, most=1),
    Figure(
        "kills", "repeated_else", "epochs done twice by runs that were not killed", COUNT, most=0
    ),
    *(
        Figure(
            *(f"{part}_full", key, what, COUNT),
            most=most,
            command=f"python -m benchmarks.{part} --full --json",
        )
        for part in ("crash", "kills")
        for key, what, most in (*_FULL, (*_EPOCHS[part], 0))
    ),
    Figure(
        "hostile",
        "rss_growth_mib",
        "100,000 malformed requests: growth of the daemon's memory",
        "{:.0f} MiB",
        most=30 * MB,
    ),
    Figure("hostile", "internal_errors", "internal errors", COUNT, most=0),
    Figure(
        "scrape",
        "cpu_ms",
        "CPU of a scrape of metrics, 10,000 live jobs and 200 GPUs",
        MS,
        most=50.0,
    ),
    Figure("scrape", "large_cpu_ms", "the same with 4,096 GPUs", MS),
    Figure("scrape", "sent_kib", "what is sent of the first", "{:.0f} KiB"),
    Figure("frontdoor", "calm_p99_ms", "an honest call, 99th percentile", MS),
    Figure("frontdoor", "one_user_p99_ms", "the same beside 2,000 half-open calls", MS, most=200.0),
    Figure("frontdoor", "many_p99_ms", "the same, each from its own address", MS, most=200.0),
    Figure("frontdoor", "failed", "honest calls without an answer meanwhile", COUNT, most=0),
    Figure(
        "frontdoor",
        "rss_growth_mib",
        "growth of the daemon's memory meanwhile, at its peak",
        "{:.0f} MiB",
        most=60 * MB,
    ),
    *(
        Figure("relay", f"datagrams_{gateway}{clock}", f"{what}: the gateway {how}", PARTS, most=1)
        for gateway, how in (
            ("present", "is there"),
            ("slow", "answers after 5 s"),
            ("absent", "is away"),
        )
        for clock, what in (
            ("", "additional time for steps of 1 ms that log 10 values each through a relay"),
            ("_cpu", "the same, additional CPU"),
        )
    ),
    Figure("relay", "mlflow_present", "the same time, waiting for 1,000 values each 0.1 s", PARTS),
    Figure("relay", "idle_cpu", "CPU of a relay that hears nothing, of a core", PARTS, most=0.3),
    Figure("relay", "busy_cpu", "the same while 10,000 values arrive each second", PARTS),
    Figure("relay", "idle_rss_mib", "its memory", "{:.1f} MiB", most=20 * MB),
    Figure("relay", "rss_mib", "the same after 600,000 values", "{:.1f} MiB", most=20 * MB),
    Figure("relay", "lost", "values that were logged and are not in the gateway", COUNT, most=0),
)

LIBRARY = (
    Figure("measure", "ns", "one `measure()`", "{:.0f} ns", most=150),
    Figure("measure", "ratio", "the same, as a multiple of an empty method call", "{:.1f}"),
    Figure("measure", "bytes", "bytes that stay allocated after each call", COUNT, most=0),
    Figure(
        "measure",
        "p99_us",
        "its 99th percentile while the sender's thread is busy",
        "{:.2f} µs",
        most=2,
    ),
    Figure(
        "measure", "import_ms", "CPU to import the library, without the interpreter's", MS, most=15
    ),
    Figure(
        "measure",
        "make_ms",
        "the same with `KubeProfiler()` and everything it imports except gRPC",
        MS,
    ),
    *(
        Figure("overhead", daemon + clock, f"{what}: the scheduler {how}", "{:.2f} %", most=0.5)
        for daemon, how in (
            ("present", "answers"),
            ("slow", "answers after 5 s"),
            ("absent", "is away"),
        )
        for clock, what in (
            ("", "additional CPU for steps of 1 ms"),
            ("_wall", "additional time for steps of 1 ms"),
        )
    ),
    Figure("overhead", "present_start_ms", "wait in `start_epoch()`: the scheduler answers", MS),
    Figure(
        "overhead", "slow_start_ms", "the same: the scheduler answers after 5 s", MS, most=1_050
    ),
    Figure("overhead", "absent_start_ms", "the same: the scheduler is away", MS, most=1_050),
    Figure("size", "imported", "lines of code that the import loads", COUNT),
    Figure(
        "size",
        "training",
        "lines of code that a training loads, with gRPC and without errors",
        COUNT,
    ),
    Figure("size", "whole", "lines of code in total", COUNT, most=500),
    Figure("size", "wheel_kb", "size of the wheel", "{:.0f} kB", most=40),
    Figure(
        "legacy",
        "requests_per_second",
        "requests of old images while the daemon plans, per second",
        COUNT,
        least=1_000,
    ),
    Figure("legacy", "p99_ms", "the 99th percentile of their latency", "{:.0f} ms"),
)

KUBERNETES = (
    Figure("kube", "jobs", "jobs on a real API server with nodes simulated by kwok", COUNT),
    Figure("kube", "gpus", "GPUs of these nodes", COUNT),
    Figure("kube", "p50_seconds", "time from submission to running: median", SECONDS),
    Figure("kube", "p99_seconds", "the same: 99th percentile", SECONDS),
    Figure(
        "kube",
        "requests_per_job",
        "requests to the API server per job, without logs",
        "{:.2f}",
        most=6,
    ),
    Figure("kube", "cpu_seconds", "the daemon's CPU for all of these jobs", SECONDS),
    Figure("kube", "rss_mib", "the daemon's peak memory", "{:.0f} MiB", most=400 * MB),
    Figure("kube", "left", "objects of ours that remain when all jobs have ended", COUNT, most=0),
    Figure("crash_kube", "kills", "how often a daemon with pods was killed (`kill -9`)", COUNT),
    Figure("crash_kube", "lost", "jobs lost by that", COUNT, most=0),
    Figure("crash_kube", "doubled", "runs started twice", COUNT, most=0),
    Figure("crash_kube", "overbooked", "how often a GPU was overbooked", COUNT, most=0),
    Figure("crash_kube", "leaked", "objects leaked", COUNT, most=0),
    Figure("crash_kube", "went_on", "runs that outlived the loss of the database", COUNT, least=1),
    Figure("crash_kube", "interrupted", "runs that did not", COUNT, most=0),
    Figure("image", "pulled_mb", "the daemon's image, compressed", "{:.0f} MB"),
    Figure("image", "unpacked_mb", "the same on a node's disk", "{:.0f} MB"),
    Figure("image", "ready_seconds", "time from its start until it is ready", SECONDS),
)

OPTIMIZER = (
    Figure(
        "decision_64",
        "cpu_seconds",
        "a first decision with sharing for 64 GPUs and 160 jobs: CPU",
        SECONDS,
        most=0.1,
        command=SMALL,
    ),
    Figure(
        "decision_64",
        "milp_gap",
        "gap to the optimum of `scipy.optimize.milp`, with at most two jobs on a GPU",
        PER_CENT,
        most=0.01,
        command=SMALL,
    ),
    Figure(
        "decision_64",
        "gap",
        "gap to the bound",
        PER_CENT,
        command=SMALL,
    ),
    Figure(
        "decision",
        "cpu_seconds",
        "a first decision for 4,096 GPUs and 10,000 jobs: CPU",
        SECONDS,
        most=1.0,
    ),
    Figure("decision", "gap", "gap to the bound", PER_CENT, most=0.008),
    Figure(
        "decision",
        "tick_seconds",
        "a decision after 1 % of these jobs have changed: CPU",
        SECONDS,
        most=0.1,
    ),
    Figure("decision", "rss_mib", "peak memory of these decisions", "{:,.0f} MiB"),
    Figure(
        "decision_20000",
        "cpu_seconds",
        "a first decision for 20,000 GPUs and 50,000 jobs: CPU",
        SECONDS,
        most=2.5,
        command=LARGE,
    ),
    Figure(
        "whole_step",
        "cold_seconds",
        "a whole first step of the loop, 4,096 GPUs and 10,000 jobs",
        SECONDS,
        most=1.5,
    ),
    Figure(
        "whole_step",
        "tick_seconds",
        "a step with a plan when little has changed",
        SECONDS,
        most=0.3,
    ),
    Figure(
        "whole_step",
        "upheaval_seconds",
        "the same when every run has ended an epoch since the last plan",
        SECONDS,
    ),
    Figure(
        "whole_step",
        "report_seconds",
        "a step that only receives reports of epochs",
        "{:.2g} s",
        most=0.001,
    ),
    Figure(
        "fit",
        "cpu_seconds",
        "one round of learning the speeds and interference of 10,000 jobs: CPU",
        SECONDS,
        most=0.05,
    ),
    Figure(
        "simulate",
        "cpu_seconds",
        "Philly's week, 12,751 jobs, under `gpu_sharing`: CPU",
        SECONDS,
        most=150.0,
    ),
    Figure("simulate", "fifo_cpu_seconds", "the same under `fifo`", SECONDS, most=40.0),
    Figure("simulate", "jobs_per_second", "jobs per second under `gpu_sharing`", COUNT),
    Figure(
        "regret",
        "worst",
        "mean completion time with learned speeds relative to true ones: worst strange world",
        "{:+.1%}",
        most=0.1,
    ),
    Figure("regret", "mean", "the same, mean of all worlds", "{:+.1%}"),
    Figure(
        "regret",
        "worst_by_elastic",
        "the same relative to `elastic`, as a ratio",
        "{:.3f}",
        most=1.1,
    ),
    Figure(
        "interference",
        "regret_drawn",
        "total speed of pairs after 3 partners each, gap to an oracle: drawn slowdowns",
        PER_CENT,
        most=0.1,
    ),
    Figure("interference", "regret_drawn_random", "the same for random pairs", PER_CENT),
    Figure("interference", "regret_lucid", "the same with Lucid's table", PER_CENT, most=0.1),
    Figure(
        "interference", "regret_v100", "the same with Gavel's table on V100", PER_CENT, most=0.1
    ),
    Figure("interference", "regret_p100", "the same on P100", PER_CENT, most=0.1),
    Figure("interference", "regret_k80", "the same on K80", PER_CENT, most=0.1),
    Figure(
        "memory", "placements_fifo_sharing", "placements on shared GPUs under `fifo_sharing`", COUNT
    ),
    Figure("memory", "overflows_fifo_sharing", "those on GPUs that were too small", COUNT, most=0),
    Figure("memory", "placements_gpu_sharing", "placements under `gpu_sharing`", COUNT),
    Figure("memory", "overflows_gpu_sharing", "those on GPUs that were too small", COUNT, most=0),
    Figure(
        "memory",
        "planted_requeues",
        "requeues with more memory after a job died from lack of memory",
        COUNT,
        least=1,
        most=1,
    ),
    Figure("memory", "planted_finished", "whether that job finished", COUNT, least=1),
    Figure(
        "elasticity",
        "share_as_predicted_t4",
        "share of the moves on 64 T4 that gained as much as predicted",
        "{:.3f}",
        least=0.8,
    ),
    Figure("elasticity", "moves_t4", "number of these moves", COUNT),
    Figure("elasticity", "share_as_predicted_mixed", "the same on 64 GPUs of 3 types", least=0.8),
    Figure("elasticity", "moves_mixed", "number of these moves", COUNT),
    Figure("elasticity", "restarts_per_job_hour_t4", "restarts per job and hour on T4"),
    Figure("elasticity", "restarts_per_job_hour_mixed", "the same on 3 types"),
    Figure("elasticity", "epochs_least_t4", "fewest epochs between two restarts", COUNT, least=1),
    Figure(
        "oracle",
        "worst",
        "FIFO, SRTF and LAS compared with an oracle on all traces: largest difference of the mean",
        "{:.4%}",
        most=0.005,
    ),
    Figure(
        "eta",
        "inside",
        "share of completions inside the 80 % interval",
        "{:.3f}",
        least=0.7,
        most=0.9,
    ),
    Figure("eta", "inside_running", "the same for jobs that ran at the forecast", "{:.3f}"),
    Figure("eta", "inside_waiting", "the same for jobs that waited", "{:.3f}"),
    Figure("eta", "starts_inside", "share of starts inside their 80 % interval", "{:.3f}"),
    Figure("eta", "told", "share of questions with a forecast", "{:.3f}"),
    Figure(
        "real",
        "gpu_sharing.mean",
        "30 real jobs replayed: simulated mean completion time relative to the real one",
        "{:+.1%}",
        least=-0.1,
        most=0.1,
    ),
    Figure(
        "real", "gpu_sharing.makespan", "the same for the makespan", "{:+.1%}", least=-0.1, most=0.1
    ),
    Figure("real", "fifo_sharing.mean", "the mean, under `fifo_sharing`", "{:+.1%}", -0.1, 0.1),
    Figure(
        "real",
        "fifo_sharing.makespan",
        "the makespan, under `fifo_sharing`",
        "{:+.1%}",
        least=-0.1,
        most=0.1,
    ),
)
