from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeyValue(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class PortMapping(_message.Message):
    __slots__ = ("host", "container")
    HOST_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    host: int
    container: int
    def __init__(self, host: _Optional[int] = ..., container: _Optional[int] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("name", "image", "command", "args", "project", "experiment", "labels", "env", "script_path", "custom_dir", "snapshots_dir", "ports", "max_epochs", "batch_size", "training_set_size", "gpus_min", "gpus_max", "memory_mib", "is_single_gpu", "disable_gpu_sharing", "priority", "held", "hours_estimate", "retries", "user", "keep_library", "process_per_gpu", "directory", "exported", "time_limit_seconds", "secrets", "storage", "storage_size", "registry_secret", "no_tracking", "debug_wait", "parallel", "metric", "maximize", "prune", "prune_after", "code", "folders", "after", "volumes", "workflow", "step")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGS_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    SCRIPT_PATH_FIELD_NUMBER: _ClassVar[int]
    CUSTOM_DIR_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOTS_DIR_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    TRAINING_SET_SIZE_FIELD_NUMBER: _ClassVar[int]
    GPUS_MIN_FIELD_NUMBER: _ClassVar[int]
    GPUS_MAX_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    IS_SINGLE_GPU_FIELD_NUMBER: _ClassVar[int]
    DISABLE_GPU_SHARING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    HOURS_ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    KEEP_LIBRARY_FIELD_NUMBER: _ClassVar[int]
    PROCESS_PER_GPU_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    STORAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_SECRET_FIELD_NUMBER: _ClassVar[int]
    NO_TRACKING_FIELD_NUMBER: _ClassVar[int]
    DEBUG_WAIT_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    MAXIMIZE_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    PRUNE_AFTER_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    FOLDERS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    name: str
    image: str
    command: _containers.RepeatedScalarFieldContainer[str]
    args: _containers.RepeatedScalarFieldContainer[str]
    project: str
    experiment: str
    labels: _containers.RepeatedCompositeFieldContainer[KeyValue]
    env: _containers.RepeatedCompositeFieldContainer[KeyValue]
    script_path: str
    custom_dir: str
    snapshots_dir: str
    ports: _containers.RepeatedCompositeFieldContainer[PortMapping]
    max_epochs: int
    batch_size: int
    training_set_size: int
    gpus_min: int
    gpus_max: int
    memory_mib: int
    is_single_gpu: bool
    disable_gpu_sharing: bool
    priority: int
    held: bool
    hours_estimate: float
    retries: int
    user: str
    keep_library: bool
    process_per_gpu: bool
    directory: str
    exported: _containers.RepeatedCompositeFieldContainer[KeyValue]
    time_limit_seconds: float
    secrets: _containers.RepeatedScalarFieldContainer[str]
    storage: str
    storage_size: str
    registry_secret: str
    no_tracking: bool
    debug_wait: int
    parallel: int
    metric: str
    maximize: bool
    prune: str
    prune_after: int
    code: str
    folders: _containers.RepeatedCompositeFieldContainer[KeyValue]
    after: _containers.RepeatedCompositeFieldContainer[After]
    volumes: _containers.RepeatedScalarFieldContainer[str]
    workflow: bytes
    step: str
    def __init__(self, name: _Optional[str] = ..., image: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., args: _Optional[_Iterable[str]] = ..., project: _Optional[str] = ..., experiment: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., env: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., script_path: _Optional[str] = ..., custom_dir: _Optional[str] = ..., snapshots_dir: _Optional[str] = ..., ports: _Optional[_Iterable[_Union[PortMapping, _Mapping]]] = ..., max_epochs: _Optional[int] = ..., batch_size: _Optional[int] = ..., training_set_size: _Optional[int] = ..., gpus_min: _Optional[int] = ..., gpus_max: _Optional[int] = ..., memory_mib: _Optional[int] = ..., is_single_gpu: _Optional[bool] = ..., disable_gpu_sharing: _Optional[bool] = ..., priority: _Optional[int] = ..., held: _Optional[bool] = ..., hours_estimate: _Optional[float] = ..., retries: _Optional[int] = ..., user: _Optional[str] = ..., keep_library: _Optional[bool] = ..., process_per_gpu: _Optional[bool] = ..., directory: _Optional[str] = ..., exported: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., time_limit_seconds: _Optional[float] = ..., secrets: _Optional[_Iterable[str]] = ..., storage: _Optional[str] = ..., storage_size: _Optional[str] = ..., registry_secret: _Optional[str] = ..., no_tracking: _Optional[bool] = ..., debug_wait: _Optional[int] = ..., parallel: _Optional[int] = ..., metric: _Optional[str] = ..., maximize: _Optional[bool] = ..., prune: _Optional[str] = ..., prune_after: _Optional[int] = ..., code: _Optional[str] = ..., folders: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., after: _Optional[_Iterable[_Union[After, _Mapping]]] = ..., volumes: _Optional[_Iterable[str]] = ..., workflow: _Optional[bytes] = ..., step: _Optional[str] = ...) -> None: ...

class After(_message.Message):
    __slots__ = ("job", "when")
    JOB_FIELD_NUMBER: _ClassVar[int]
    WHEN_FIELD_NUMBER: _ClassVar[int]
    job: str
    when: str
    def __init__(self, job: _Optional[str] = ..., when: _Optional[str] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("node", "gpu", "memory_mib")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    node: str
    gpu: str
    memory_mib: int
    def __init__(self, node: _Optional[str] = ..., gpu: _Optional[str] = ..., memory_mib: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("id", "spec", "state", "epochs_done", "max_epochs", "submitted_at", "started_at", "ended_at", "attempt", "shares", "reason", "priority", "preempted", "memory_mib", "epoch_seconds", "eta_seconds", "run_started_at", "heard_at", "why", "eta", "last_run", "exit_code", "log_line", "epochs_trained", "annotations", "scores")
    ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_DONE_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SHARES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ETA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUN_STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    HEARD_AT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    LAST_RUN_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    LOG_LINE_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_TRAINED_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    id: str
    spec: JobSpec
    state: str
    epochs_done: int
    max_epochs: int
    submitted_at: float
    started_at: float
    ended_at: float
    attempt: int
    shares: _containers.RepeatedCompositeFieldContainer[Share]
    reason: str
    priority: int
    preempted: bool
    memory_mib: int
    epoch_seconds: float
    eta_seconds: float
    run_started_at: float
    heard_at: float
    why: Why
    eta: Eta
    last_run: str
    exit_code: int
    log_line: str
    epochs_trained: int
    annotations: _containers.RepeatedCompositeFieldContainer[KeyValue]
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    def __init__(self, id: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., state: _Optional[str] = ..., epochs_done: _Optional[int] = ..., max_epochs: _Optional[int] = ..., submitted_at: _Optional[float] = ..., started_at: _Optional[float] = ..., ended_at: _Optional[float] = ..., attempt: _Optional[int] = ..., shares: _Optional[_Iterable[_Union[Share, _Mapping]]] = ..., reason: _Optional[str] = ..., priority: _Optional[int] = ..., preempted: _Optional[bool] = ..., memory_mib: _Optional[int] = ..., epoch_seconds: _Optional[float] = ..., eta_seconds: _Optional[float] = ..., run_started_at: _Optional[float] = ..., heard_at: _Optional[float] = ..., why: _Optional[_Union[Why, _Mapping]] = ..., eta: _Optional[_Union[Eta, _Mapping]] = ..., last_run: _Optional[str] = ..., exit_code: _Optional[int] = ..., log_line: _Optional[str] = ..., epochs_trained: _Optional[int] = ..., annotations: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("epoch", "value")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    value: float
    def __init__(self, epoch: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...

class Why(_message.Message):
    __slots__ = ("kind", "detail", "until", "ahead", "instead")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    INSTEAD_FIELD_NUMBER: _ClassVar[int]
    kind: str
    detail: str
    until: _containers.RepeatedCompositeFieldContainer[JobName]
    ahead: _containers.RepeatedCompositeFieldContainer[JobName]
    instead: str
    def __init__(self, kind: _Optional[str] = ..., detail: _Optional[str] = ..., until: _Optional[_Iterable[_Union[JobName, _Mapping]]] = ..., ahead: _Optional[_Iterable[_Union[JobName, _Mapping]]] = ..., instead: _Optional[str] = ...) -> None: ...

class JobName(_message.Message):
    __slots__ = ("id", "name", "stopping", "silent", "deadline")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    SILENT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    stopping: bool
    silent: bool
    deadline: float
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., stopping: _Optional[bool] = ..., silent: _Optional[bool] = ..., deadline: _Optional[float] = ...) -> None: ...

class Eta(_message.Message):
    __slots__ = ("starts_at", "starts_low", "starts_high", "ends_at", "ends_low", "ends_high", "deadline")
    STARTS_AT_FIELD_NUMBER: _ClassVar[int]
    STARTS_LOW_FIELD_NUMBER: _ClassVar[int]
    STARTS_HIGH_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    ENDS_LOW_FIELD_NUMBER: _ClassVar[int]
    ENDS_HIGH_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    starts_at: float
    starts_low: float
    starts_high: float
    ends_at: float
    ends_low: float
    ends_high: float
    deadline: float
    def __init__(self, starts_at: _Optional[float] = ..., starts_low: _Optional[float] = ..., starts_high: _Optional[float] = ..., ends_at: _Optional[float] = ..., ends_low: _Optional[float] = ..., ends_high: _Optional[float] = ..., deadline: _Optional[float] = ...) -> None: ...

class Speed(_message.Message):
    __slots__ = ("gpus", "measured_seconds", "predicted_seconds", "doubt")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DOUBT_FIELD_NUMBER: _ClassVar[int]
    gpus: str
    measured_seconds: float
    predicted_seconds: float
    doubt: float
    def __init__(self, gpus: _Optional[str] = ..., measured_seconds: _Optional[float] = ..., predicted_seconds: _Optional[float] = ..., doubt: _Optional[float] = ...) -> None: ...

class Beside(_message.Message):
    __slots__ = ("jobs", "gpus", "speed", "measured")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobName]
    gpus: str
    speed: float
    measured: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobName, _Mapping]]] = ..., gpus: _Optional[str] = ..., speed: _Optional[float] = ..., measured: _Optional[bool] = ...) -> None: ...

class Learned(_message.Message):
    __slots__ = ("speeds", "beside", "memory_asked_mib", "memory_mib", "gpu_util", "restart_seconds", "peaks", "profiles_ignored", "next_try")
    SPEEDS_FIELD_NUMBER: _ClassVar[int]
    BESIDE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_ASKED_MIB_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    GPU_UTIL_FIELD_NUMBER: _ClassVar[int]
    RESTART_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PEAKS_FIELD_NUMBER: _ClassVar[int]
    PROFILES_IGNORED_FIELD_NUMBER: _ClassVar[int]
    NEXT_TRY_FIELD_NUMBER: _ClassVar[int]
    speeds: _containers.RepeatedCompositeFieldContainer[Speed]
    beside: _containers.RepeatedCompositeFieldContainer[Beside]
    memory_asked_mib: int
    memory_mib: int
    gpu_util: float
    restart_seconds: float
    peaks: _containers.RepeatedCompositeFieldContainer[Peak]
    profiles_ignored: int
    next_try: NextTry
    def __init__(self, speeds: _Optional[_Iterable[_Union[Speed, _Mapping]]] = ..., beside: _Optional[_Iterable[_Union[Beside, _Mapping]]] = ..., memory_asked_mib: _Optional[int] = ..., memory_mib: _Optional[int] = ..., gpu_util: _Optional[float] = ..., restart_seconds: _Optional[float] = ..., peaks: _Optional[_Iterable[_Union[Peak, _Mapping]]] = ..., profiles_ignored: _Optional[int] = ..., next_try: _Optional[_Union[NextTry, _Mapping]] = ...) -> None: ...

class NextTry(_message.Message):
    __slots__ = ("kind", "gpus", "than", "speed", "doubt", "waits_for", "job")
    KIND_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    THAN_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    DOUBT_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    kind: str
    gpus: str
    than: str
    speed: float
    doubt: float
    waits_for: int
    job: JobName
    def __init__(self, kind: _Optional[str] = ..., gpus: _Optional[str] = ..., than: _Optional[str] = ..., speed: _Optional[float] = ..., doubt: _Optional[float] = ..., waits_for: _Optional[int] = ..., job: _Optional[_Union[JobName, _Mapping]] = ...) -> None: ...

class Peak(_message.Message):
    __slots__ = ("gpus", "memory_mib")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    gpus: int
    memory_mib: int
    def __init__(self, gpus: _Optional[int] = ..., memory_mib: _Optional[int] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("at", "kind", "job_id", "attempt", "data_json", "number")
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    at: float
    kind: str
    job_id: str
    attempt: int
    data_json: str
    number: int
    def __init__(self, at: _Optional[float] = ..., kind: _Optional[str] = ..., job_id: _Optional[str] = ..., attempt: _Optional[int] = ..., data_json: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("job_id", "spec", "dry_run", "secrets")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    spec: JobSpec
    dry_run: bool
    secrets: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, job_id: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., dry_run: _Optional[bool] = ..., secrets: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("job", "notes", "command", "env")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ENV_FIELD_NUMBER: _ClassVar[int]
    job: Job
    notes: _containers.RepeatedScalarFieldContainer[str]
    command: _containers.RepeatedScalarFieldContainer[str]
    env: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., command: _Optional[_Iterable[str]] = ..., env: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class SubmitManyRequest(_message.Message):
    __slots__ = ("jobs", "common", "secrets", "dry_run")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    COMMON_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[SubmitRequest]
    common: JobSpec
    secrets: _containers.RepeatedCompositeFieldContainer[KeyValue]
    dry_run: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[SubmitRequest, _Mapping]]] = ..., common: _Optional[_Union[JobSpec, _Mapping]] = ..., secrets: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SubmitManyReply(_message.Message):
    __slots__ = ("accepted", "notes")
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, accepted: _Optional[int] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job", "story", "outlook")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STORY_FIELD_NUMBER: _ClassVar[int]
    OUTLOOK_FIELD_NUMBER: _ClassVar[int]
    job: str
    story: bool
    outlook: bool
    def __init__(self, job: _Optional[str] = ..., story: _Optional[bool] = ..., outlook: _Optional[bool] = ...) -> None: ...

class GetJobReply(_message.Message):
    __slots__ = ("job", "story", "learned", "origin")
    JOB_FIELD_NUMBER: _ClassVar[int]
    STORY_FIELD_NUMBER: _ClassVar[int]
    LEARNED_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    job: Job
    story: _containers.RepeatedCompositeFieldContainer[Fact]
    learned: Learned
    origin: CodeOrigin
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., story: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ..., learned: _Optional[_Union[Learned, _Mapping]] = ..., origin: _Optional[_Union[CodeOrigin, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("jobs", "all_users", "limit", "states", "project", "experiment", "labels", "user", "cursor", "order", "ascending", "search", "brief")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    ALL_USERS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ASCENDING_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedScalarFieldContainer[str]
    all_users: bool
    limit: int
    states: _containers.RepeatedScalarFieldContainer[str]
    project: str
    experiment: str
    labels: _containers.RepeatedCompositeFieldContainer[KeyValue]
    user: str
    cursor: str
    order: str
    ascending: bool
    search: str
    brief: bool
    def __init__(self, jobs: _Optional[_Iterable[str]] = ..., all_users: _Optional[bool] = ..., limit: _Optional[int] = ..., states: _Optional[_Iterable[str]] = ..., project: _Optional[str] = ..., experiment: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ..., user: _Optional[str] = ..., cursor: _Optional[str] = ..., order: _Optional[str] = ..., ascending: _Optional[bool] = ..., search: _Optional[str] = ..., brief: _Optional[bool] = ...) -> None: ...

class ListJobsReply(_message.Message):
    __slots__ = ("jobs", "total", "next_cursor", "events")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NEXT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    total: int
    next_cursor: str
    events: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., total: _Optional[int] = ..., next_cursor: _Optional[str] = ..., events: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job", "graceful", "with_dependents")
    JOB_FIELD_NUMBER: _ClassVar[int]
    GRACEFUL_FIELD_NUMBER: _ClassVar[int]
    WITH_DEPENDENTS_FIELD_NUMBER: _ClassVar[int]
    job: str
    graceful: bool
    with_dependents: bool
    def __init__(self, job: _Optional[str] = ..., graceful: _Optional[bool] = ..., with_dependents: _Optional[bool] = ...) -> None: ...

class CancelJobReply(_message.Message):
    __slots__ = ("job", "already_ended", "dependents", "behind")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ALREADY_ENDED_FIELD_NUMBER: _ClassVar[int]
    DEPENDENTS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    job: Job
    already_ended: bool
    dependents: _containers.RepeatedCompositeFieldContainer[Job]
    behind: _containers.RepeatedCompositeFieldContainer[JobName]
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., already_ended: _Optional[bool] = ..., dependents: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., behind: _Optional[_Iterable[_Union[JobName, _Mapping]]] = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("job", "priority", "held", "max_epochs", "annotate")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    MAX_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    ANNOTATE_FIELD_NUMBER: _ClassVar[int]
    job: str
    priority: int
    held: bool
    max_epochs: int
    annotate: _containers.RepeatedCompositeFieldContainer[KeyValue]
    def __init__(self, job: _Optional[str] = ..., priority: _Optional[int] = ..., held: _Optional[bool] = ..., max_epochs: _Optional[int] = ..., annotate: _Optional[_Iterable[_Union[KeyValue, _Mapping]]] = ...) -> None: ...

class GetLogsRequest(_message.Message):
    __slots__ = ("job", "tail", "follow", "attempt", "have", "download")
    class HaveEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    JOB_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HAVE_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    job: str
    tail: int
    follow: bool
    attempt: int
    have: _containers.ScalarMap[str, int]
    download: bool
    def __init__(self, job: _Optional[str] = ..., tail: _Optional[int] = ..., follow: _Optional[bool] = ..., attempt: _Optional[int] = ..., have: _Optional[_Mapping[str, int]] = ..., download: _Optional[bool] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("data", "file", "note", "job_id", "offset")
    DATA_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    file: str
    note: str
    job_id: str
    offset: int
    def __init__(self, data: _Optional[bytes] = ..., file: _Optional[str] = ..., note: _Optional[str] = ..., job_id: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class GetClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GpuJob(_message.Message):
    __slots__ = ("job_id", "name", "user", "memory_mib", "state", "used_mib", "busy")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    USED_MIB_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    name: str
    user: str
    memory_mib: int
    state: str
    used_mib: int
    busy: float
    def __init__(self, job_id: _Optional[str] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., memory_mib: _Optional[int] = ..., state: _Optional[str] = ..., used_mib: _Optional[int] = ..., busy: _Optional[float] = ...) -> None: ...

class GpuProcess(_message.Message):
    __slots__ = ("pid", "name", "memory_mib", "job_id", "attempt")
    PID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    pid: int
    name: str
    memory_mib: int
    job_id: str
    attempt: int
    def __init__(self, pid: _Optional[int] = ..., name: _Optional[str] = ..., memory_mib: _Optional[int] = ..., job_id: _Optional[str] = ..., attempt: _Optional[int] = ...) -> None: ...

class GpuState(_message.Message):
    __slots__ = ("node", "gpu", "type", "memory_mib", "capacity_mib", "reserved_mib", "jobs", "ready", "index", "used_mib", "busy", "strange_mib", "fault", "lost", "keeps", "processes", "slow")
    NODE_FIELD_NUMBER: _ClassVar[int]
    GPU_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_MIB_FIELD_NUMBER: _ClassVar[int]
    RESERVED_MIB_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    USED_MIB_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    STRANGE_MIB_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    KEEPS_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    SLOW_FIELD_NUMBER: _ClassVar[int]
    node: str
    gpu: str
    type: str
    memory_mib: int
    capacity_mib: int
    reserved_mib: int
    jobs: _containers.RepeatedCompositeFieldContainer[GpuJob]
    ready: bool
    index: int
    used_mib: int
    busy: float
    strange_mib: int
    fault: str
    lost: bool
    keeps: str
    processes: _containers.RepeatedCompositeFieldContainer[GpuProcess]
    slow: SlowGpu
    def __init__(self, node: _Optional[str] = ..., gpu: _Optional[str] = ..., type: _Optional[str] = ..., memory_mib: _Optional[int] = ..., capacity_mib: _Optional[int] = ..., reserved_mib: _Optional[int] = ..., jobs: _Optional[_Iterable[_Union[GpuJob, _Mapping]]] = ..., ready: _Optional[bool] = ..., index: _Optional[int] = ..., used_mib: _Optional[int] = ..., busy: _Optional[float] = ..., strange_mib: _Optional[int] = ..., fault: _Optional[str] = ..., lost: _Optional[bool] = ..., keeps: _Optional[str] = ..., processes: _Optional[_Iterable[_Union[GpuProcess, _Mapping]]] = ..., slow: _Optional[_Union[SlowGpu, _Mapping]] = ...) -> None: ...

class SlowGpu(_message.Message):
    __slots__ = ("speed", "doubt", "epochs", "jobs")
    SPEED_FIELD_NUMBER: _ClassVar[int]
    DOUBT_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    speed: float
    doubt: float
    epochs: int
    jobs: int
    def __init__(self, speed: _Optional[float] = ..., doubt: _Optional[float] = ..., epochs: _Optional[int] = ..., jobs: _Optional[int] = ...) -> None: ...

class UserTotal(_message.Message):
    __slots__ = ("user", "running", "waiting", "gpus", "memory_mib")
    USER_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    user: str
    running: int
    waiting: int
    gpus: float
    memory_mib: int
    def __init__(self, user: _Optional[str] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., gpus: _Optional[float] = ..., memory_mib: _Optional[int] = ...) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("gpus", "users", "policy", "observed_at", "version", "disk_bytes", "disk_free_bytes", "agents")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_AT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    AGENTS_FIELD_NUMBER: _ClassVar[int]
    gpus: _containers.RepeatedCompositeFieldContainer[GpuState]
    users: _containers.RepeatedCompositeFieldContainer[UserTotal]
    policy: str
    observed_at: float
    version: str
    disk_bytes: int
    disk_free_bytes: int
    agents: _containers.RepeatedCompositeFieldContainer[AgentState]
    def __init__(self, gpus: _Optional[_Iterable[_Union[GpuState, _Mapping]]] = ..., users: _Optional[_Iterable[_Union[UserTotal, _Mapping]]] = ..., policy: _Optional[str] = ..., observed_at: _Optional[float] = ..., version: _Optional[str] = ..., disk_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., agents: _Optional[_Iterable[_Union[AgentState, _Mapping]]] = ...) -> None: ...

class AgentState(_message.Message):
    __slots__ = ("node", "heard_at")
    NODE_FIELD_NUMBER: _ClassVar[int]
    HEARD_AT_FIELD_NUMBER: _ClassVar[int]
    node: str
    heard_at: float
    def __init__(self, node: _Optional[str] = ..., heard_at: _Optional[float] = ...) -> None: ...

class StartEpochRequest(_message.Message):
    __slots__ = ("job_id", "attempt", "rank", "local_rank", "epoch", "trained")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: int
    rank: int
    local_rank: int
    epoch: int
    trained: int
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., local_rank: _Optional[int] = ..., epoch: _Optional[int] = ..., trained: _Optional[int] = ...) -> None: ...

class StartEpochReply(_message.Message):
    __slots__ = ("stop", "reason")
    STOP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    reason: str
    def __init__(self, stop: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Profile(_message.Message):
    __slots__ = ("job_id", "attempt", "rank", "epoch", "step_seconds", "epoch_seconds", "samples_per_second", "memory_mib", "gpu_util", "steps", "trained", "score")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_SECONDS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    GPU_UTIL_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TRAINED_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: int
    rank: int
    epoch: int
    step_seconds: float
    epoch_seconds: float
    samples_per_second: float
    memory_mib: int
    gpu_util: float
    steps: int
    trained: int
    score: float
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., epoch: _Optional[int] = ..., step_seconds: _Optional[float] = ..., epoch_seconds: _Optional[float] = ..., samples_per_second: _Optional[float] = ..., memory_mib: _Optional[int] = ..., gpu_util: _Optional[float] = ..., steps: _Optional[int] = ..., trained: _Optional[int] = ..., score: _Optional[float] = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("profiles",)
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[Profile]
    def __init__(self, profiles: _Optional[_Iterable[_Union[Profile, _Mapping]]] = ...) -> None: ...

class EndEpochRequest(_message.Message):
    __slots__ = ("profiles",)
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[Profile]
    def __init__(self, profiles: _Optional[_Iterable[_Union[Profile, _Mapping]]] = ...) -> None: ...

class EndEpochReply(_message.Message):
    __slots__ = ("epochs_done",)
    EPOCHS_DONE_FIELD_NUMBER: _ClassVar[int]
    epochs_done: int
    def __init__(self, epochs_done: _Optional[int] = ...) -> None: ...

class FinishRequest(_message.Message):
    __slots__ = ("job_id", "attempt", "rank", "preempted")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    PREEMPTED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: int
    rank: int
    preempted: bool
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., preempted: _Optional[bool] = ...) -> None: ...

class AgentReport(_message.Message):
    __slots__ = ("node", "cards", "keeps")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CARDS_FIELD_NUMBER: _ClassVar[int]
    KEEPS_FIELD_NUMBER: _ClassVar[int]
    node: str
    cards: _containers.RepeatedCompositeFieldContainer[AgentCard]
    keeps: str
    def __init__(self, node: _Optional[str] = ..., cards: _Optional[_Iterable[_Union[AgentCard, _Mapping]]] = ..., keeps: _Optional[str] = ...) -> None: ...

class AgentCard(_message.Message):
    __slots__ = ("uuid", "index", "type", "memory_mib", "reserved_mib", "used_mib", "busy", "fault", "lost", "processes", "leave")
    UUID_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    RESERVED_MIB_FIELD_NUMBER: _ClassVar[int]
    USED_MIB_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    uuid: str
    index: int
    type: str
    memory_mib: int
    reserved_mib: int
    used_mib: int
    busy: float
    fault: str
    lost: bool
    processes: _containers.RepeatedCompositeFieldContainer[AgentProcess]
    leave: bool
    def __init__(self, uuid: _Optional[str] = ..., index: _Optional[int] = ..., type: _Optional[str] = ..., memory_mib: _Optional[int] = ..., reserved_mib: _Optional[int] = ..., used_mib: _Optional[int] = ..., busy: _Optional[float] = ..., fault: _Optional[str] = ..., lost: _Optional[bool] = ..., processes: _Optional[_Iterable[_Union[AgentProcess, _Mapping]]] = ..., leave: _Optional[bool] = ...) -> None: ...

class AgentProcess(_message.Message):
    __slots__ = ("pid", "memory_mib", "pod", "name", "busy")
    PID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    pid: int
    memory_mib: int
    pod: str
    name: str
    busy: float
    def __init__(self, pid: _Optional[int] = ..., memory_mib: _Optional[int] = ..., pod: _Optional[str] = ..., name: _Optional[str] = ..., busy: _Optional[float] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("stop", "reason")
    STOP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    stop: bool
    reason: str
    def __init__(self, stop: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class IdentifyRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class IdentifyReply(_message.Message):
    __slots__ = ("user", "job_id", "node", "admin", "valid_until", "session", "version", "now")
    USER_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADMIN_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    user: str
    job_id: str
    node: str
    admin: bool
    valid_until: float
    session: bool
    version: str
    now: float
    def __init__(self, user: _Optional[str] = ..., job_id: _Optional[str] = ..., node: _Optional[str] = ..., admin: _Optional[bool] = ..., valid_until: _Optional[float] = ..., session: _Optional[bool] = ..., version: _Optional[str] = ..., now: _Optional[float] = ...) -> None: ...

class CreateLoginRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateLoginReply(_message.Message):
    __slots__ = ("code", "valid_until", "url")
    CODE_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    code: str
    valid_until: float
    url: str
    def __init__(self, code: _Optional[str] = ..., valid_until: _Optional[float] = ..., url: _Optional[str] = ...) -> None: ...

class ExchangeLoginRequest(_message.Message):
    __slots__ = ("code", "user")
    CODE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    code: str
    user: str
    def __init__(self, code: _Optional[str] = ..., user: _Optional[str] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("token", "user", "valid_until")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    VALID_UNTIL_FIELD_NUMBER: _ClassVar[int]
    token: str
    user: str
    valid_until: float
    def __init__(self, token: _Optional[str] = ..., user: _Optional[str] = ..., valid_until: _Optional[float] = ...) -> None: ...

class RenewSessionRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EndSessionRequest(_message.Message):
    __slots__ = ("all",)
    ALL_FIELD_NUMBER: _ClassVar[int]
    all: bool
    def __init__(self, all: _Optional[bool] = ...) -> None: ...

class EndSessionReply(_message.Message):
    __slots__ = ("ended",)
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ended: int
    def __init__(self, ended: _Optional[int] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("after", "jobs", "user", "project", "experiment", "kinds")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    after: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    user: str
    project: str
    experiment: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, after: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., experiment: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchEventsReply(_message.Message):
    __slots__ = ("facts", "jobs", "cursor", "lost", "list_again")
    FACTS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LIST_AGAIN_FIELD_NUMBER: _ClassVar[int]
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    cursor: str
    lost: _containers.RepeatedCompositeFieldContainer[Lost]
    list_again: bool
    def __init__(self, facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., cursor: _Optional[str] = ..., lost: _Optional[_Iterable[_Union[Lost, _Mapping]]] = ..., list_again: _Optional[bool] = ...) -> None: ...

class Lost(_message.Message):
    __slots__ = ("first", "last", "reason")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    reason: str
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ReadLogRequest(_message.Message):
    __slots__ = ("job", "attempt", "rank", "offset", "length", "list")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    rank: int
    offset: int
    length: int
    list: bool
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ..., list: _Optional[bool] = ...) -> None: ...

class ReadLogReply(_message.Message):
    __slots__ = ("job_id", "attempt", "rank", "size", "offset", "parts", "next", "ended", "note", "files", "files_left_out")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    FILES_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    attempt: int
    rank: int
    size: int
    offset: int
    parts: _containers.RepeatedCompositeFieldContainer[LogPart]
    next: int
    ended: bool
    note: str
    files: _containers.RepeatedCompositeFieldContainer[LogFile]
    files_left_out: int
    def __init__(self, job_id: _Optional[str] = ..., attempt: _Optional[int] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ..., offset: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[LogPart, _Mapping]]] = ..., next: _Optional[int] = ..., ended: _Optional[bool] = ..., note: _Optional[str] = ..., files: _Optional[_Iterable[_Union[LogFile, _Mapping]]] = ..., files_left_out: _Optional[int] = ...) -> None: ...

class LogPart(_message.Message):
    __slots__ = ("data", "gap")
    DATA_FIELD_NUMBER: _ClassVar[int]
    GAP_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    gap: int
    def __init__(self, data: _Optional[bytes] = ..., gap: _Optional[int] = ...) -> None: ...

class LogFile(_message.Message):
    __slots__ = ("attempt", "rank", "size")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    attempt: int
    rank: int
    size: int
    def __init__(self, attempt: _Optional[int] = ..., rank: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ("first_day", "last_day", "user", "project", "by")
    FIRST_DAY_FIELD_NUMBER: _ClassVar[int]
    LAST_DAY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    first_day: str
    last_day: str
    user: str
    project: str
    by: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, first_day: _Optional[str] = ..., last_day: _Optional[str] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., by: _Optional[_Iterable[str]] = ...) -> None: ...

class GetUsageReply(_message.Message):
    __slots__ = ("days", "counted_since", "cut", "first_day", "last_day")
    DAYS_FIELD_NUMBER: _ClassVar[int]
    COUNTED_SINCE_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    FIRST_DAY_FIELD_NUMBER: _ClassVar[int]
    LAST_DAY_FIELD_NUMBER: _ClassVar[int]
    days: _containers.RepeatedCompositeFieldContainer[DayUsage]
    counted_since: float
    cut: bool
    first_day: str
    last_day: str
    def __init__(self, days: _Optional[_Iterable[_Union[DayUsage, _Mapping]]] = ..., counted_since: _Optional[float] = ..., cut: _Optional[bool] = ..., first_day: _Optional[str] = ..., last_day: _Optional[str] = ...) -> None: ...

class DayUsage(_message.Message):
    __slots__ = ("day", "user", "project", "gpu_seconds", "run_seconds", "runs")
    DAY_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    PROJECT_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    day: str
    user: str
    project: str
    gpu_seconds: float
    run_seconds: float
    runs: int
    def __init__(self, day: _Optional[str] = ..., user: _Optional[str] = ..., project: _Optional[str] = ..., gpu_seconds: _Optional[float] = ..., run_seconds: _Optional[float] = ..., runs: _Optional[int] = ...) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPoliciesReply(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[PolicyInfo]
    def __init__(self, policies: _Optional[_Iterable[_Union[PolicyInfo, _Mapping]]] = ...) -> None: ...

class PolicyInfo(_message.Message):
    __slots__ = ("name", "summary", "active")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    name: str
    summary: str
    active: bool
    def __init__(self, name: _Optional[str] = ..., summary: _Optional[str] = ..., active: _Optional[bool] = ...) -> None: ...

class CodeOrigin(_message.Message):
    __slots__ = ("commit", "branch", "dirty", "diff", "untracked", "remote", "author", "folder")
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    DIRTY_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    UNTRACKED_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    commit: str
    branch: str
    dirty: bool
    diff: str
    untracked: _containers.RepeatedScalarFieldContainer[str]
    remote: str
    author: str
    folder: str
    def __init__(self, commit: _Optional[str] = ..., branch: _Optional[str] = ..., dirty: _Optional[bool] = ..., diff: _Optional[str] = ..., untracked: _Optional[_Iterable[str]] = ..., remote: _Optional[str] = ..., author: _Optional[str] = ..., folder: _Optional[str] = ...) -> None: ...

class StorePackageRequest(_message.Message):
    __slots__ = ("package", "origin")
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    package: str
    origin: CodeOrigin
    def __init__(self, package: _Optional[str] = ..., origin: _Optional[_Union[CodeOrigin, _Mapping]] = ...) -> None: ...

class StorePackageReply(_message.Message):
    __slots__ = ("manifest_missing", "missing", "package")
    MANIFEST_MISSING_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    manifest_missing: bool
    missing: _containers.RepeatedScalarFieldContainer[int]
    package: Package
    def __init__(self, manifest_missing: _Optional[bool] = ..., missing: _Optional[_Iterable[int]] = ..., package: _Optional[_Union[Package, _Mapping]] = ...) -> None: ...

class Package(_message.Message):
    __slots__ = ("id", "files", "bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    id: str
    files: int
    bytes: int
    def __init__(self, id: _Optional[str] = ..., files: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class FileParts(_message.Message):
    __slots__ = ("parts",)
    PARTS_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[FilePart]
    def __init__(self, parts: _Optional[_Iterable[_Union[FilePart, _Mapping]]] = ...) -> None: ...

class FilePart(_message.Message):
    __slots__ = ("digest", "size", "data")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    size: int
    data: bytes
    def __init__(self, digest: _Optional[bytes] = ..., size: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutFilesReply(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: int
    def __init__(self, files: _Optional[int] = ...) -> None: ...

class FindPackageRequest(_message.Message):
    __slots__ = ("package", "latest")
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    package: str
    latest: bool
    def __init__(self, package: _Optional[str] = ..., latest: _Optional[bool] = ...) -> None: ...

class FetchFilesRequest(_message.Message):
    __slots__ = ("package", "digests")
    PACKAGE_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    package: str
    digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, package: _Optional[str] = ..., digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ConnectRequest(_message.Message):
    __slots__ = ("to", "data", "end", "size", "signal")
    TO_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    to: ConnectTo
    data: bytes
    end: bool
    size: TerminalSize
    signal: int
    def __init__(self, to: _Optional[_Union[ConnectTo, _Mapping]] = ..., data: _Optional[bytes] = ..., end: _Optional[bool] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ..., signal: _Optional[int] = ...) -> None: ...

class ConnectTo(_message.Message):
    __slots__ = ("job", "command", "terminal", "term", "port", "hold")
    JOB_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    job: str
    command: _containers.RepeatedScalarFieldContainer[str]
    terminal: TerminalSize
    term: str
    port: int
    hold: bool
    def __init__(self, job: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ..., terminal: _Optional[_Union[TerminalSize, _Mapping]] = ..., term: _Optional[str] = ..., port: _Optional[int] = ..., hold: _Optional[bool] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("columns", "lines")
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    columns: int
    lines: int
    def __init__(self, columns: _Optional[int] = ..., lines: _Optional[int] = ...) -> None: ...

class ConnectReply(_message.Message):
    __slots__ = ("job_id", "data", "errors", "end", "taken", "exit_code", "note")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TAKEN_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    data: bytes
    errors: bytes
    end: bool
    taken: int
    exit_code: int
    note: str
    def __init__(self, job_id: _Optional[str] = ..., data: _Optional[bytes] = ..., errors: _Optional[bytes] = ..., end: _Optional[bool] = ..., taken: _Optional[int] = ..., exit_code: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...
