"""Which holders should exist, and which of their GPUs jobs may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.clusters.kubernetes import pods
from scheduler.clusters.kubernetes.gpu_requests import RequestingPod
from scheduler.clusters.kubernetes.holders import holder as holding
from scheduler.clusters.kubernetes.holders.holder import (
    MIXED,
    OWNED,
    HeldNodeSpec,
    Hold,
    Holder,
    HolderTemplate,
)
from scheduler.clusters.kubernetes.holders.holders import Holders, HolderTimeouts
from scheduler.clusters.kubernetes.holders.node import HolderWorld
from scheduler.clusters.kubernetes.pods import KubeNode, KubePod
from scheduler.core.errors import Rejected
from scheduler.core.model import Gpu, PodState, Share
from scheduler.gpus.usage import GpuReading, GpuReport, Process

DRESS = HolderTemplate("agent:1", "scheduler:7070")
WAITS = HolderTimeouts(idle_seconds=60.0, held_seconds=120.0, again_seconds=300.0)
KIND = Gpu("", 0, "t4", 15_000)
NODE = "n1"


def reading(uuid: str, *processes: Process, index: int = 0) -> GpuReading:
    return GpuReading(Gpu(uuid, index, "tesla-t4", 16_384, 300), 300, processes=processes)


def site(mode: str = MIXED, count: int = 2, **more: Any) -> HeldNodeSpec:
    return HeldNodeSpec(NODE, mode, count, KIND, **more)


def holder(number: int = 0, count: int = 1, **more: Any) -> Holder:
    hold = Hold(NODE, number, count)
    given = {"uid": f"u{number}", "state": PodState.RUNNING, **more}
    return Holder(hold, **{"spec_hash": holding.spec_hash(hold, DRESS), **given})


def world(
    place: HeldNodeSpec,
    *there: Holder,
    told: Mapping[int, Sequence[GpuReading]] | None = None,
    taken: Iterable[str] = (),
    wanted: Iterable[str] = (),
) -> HolderWorld:
    return HolderWorld(
        {NODE: place},
        {each.name: each for each in there},
        {Hold(NODE, number, 1).name: tuple(gpus) for number, gpus in (told or {}).items()},
        {NODE: set(taken)},
        {NODE: set(wanted)},
    )


def looked(at: HolderWorld, now: float = 0.0, holders: Holders | None = None) -> Holders:
    made = holders or Holders(DRESS, WAITS)
    made.look(at, now)
    return made


def offered(holders: Holders) -> list[tuple[str, str]]:
    """The offered GPUs, each with the reason why nothing is started on it."""
    return [(gpu.uuid, gpu.fault) for gpu in holders.gpus(NODE) or ()]


def on(*gpus: str) -> list[Share]:
    return [Share(NODE, gpu, 1000) for gpu in gpus]


# --- owned nodes --------------------------------------------------------------------------------


def test_one_holder_takes_all_gpus_of_an_owned_node() -> None:
    holders = looked(world(site(OWNED, 4)))
    assert holders.missing == [Hold(NODE, 0, 4)]
    assert offered(holders) == []


def test_its_gpus_are_offered_once_its_agent_has_told_them() -> None:
    four = holder(count=2)
    holders = looked(world(site(OWNED), replace(four, state=PodState.PENDING)))
    assert (holders.missing, offered(holders)) == ([], [])
    looked(world(site(OWNED), four), holders=holders)
    assert offered(holders) == []
    looked(
        world(site(OWNED), four, told={0: [reading("GPU-a"), reading("GPU-b")]}), holders=holders
    )
    assert offered(holders) == [("GPU-a", ""), ("GPU-b", "")]
    assert holders.cards(on("GPU-b")) == {(NODE, "GPU-b"): "GPU-b"}


def test_or_once_the_annotation_of_the_node_has() -> None:
    listed = site(OWNED, gpus=(Gpu("GPU-a", 0, "t4", 16_384),))
    assert offered(looked(world(listed, holder(count=2)))) == [("GPU-a", "")]
    assert offered(looked(world(listed))) == []


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ([], "no holder has it"),
        ([holder(count=2, state=PodState.TERMINATING)], "its holder is gone"),
        ([holder(count=2, state=PodState.FAILED)], "no holder has it"),
        (
            [holder(count=2, state=PodState.PENDING, words="no place")],
            "its holder waits: no place",
        ),
    ],
)
def test_gpus_that_lost_their_holder_are_suspect_and_their_jobs_go_on(
    there: list[Holder], why: str
) -> None:
    told = {0: [reading("GPU-a"), reading("GPU-b")]}
    holders = looked(world(site(OWNED), holder(count=2), told=told))
    looked(world(site(OWNED), *there, taken=["GPU-a"]), holders=holders)
    assert offered(holders) == [("GPU-a", why), ("GPU-b", why)]
    assert list(holders.suspects()) == [(NODE, "GPU-a")]
    assert holders.cards(on("GPU-a")) is None
    assert holders.missing == ([] if there else [Hold(NODE, 0, 2)])
    looked(world(site(OWNED), holder(count=2), told=told, taken=["GPU-a"]), holders=holders)
    assert offered(holders) == [("GPU-a", ""), ("GPU-b", "")]
    assert not list(holders.suspects())


def test_one_that_has_ended_is_removed_and_another_one_made() -> None:
    over = holder(count=2, state=PodState.FAILED)
    holders = looked(world(site(OWNED), over))
    assert (holders.over, holders.missing) == ([over], [])
    assert not holders.give_back()


def test_an_agent_that_sees_more_than_was_given_is_not_believed() -> None:
    told = {0: [reading("GPU-a"), reading("GPU-b"), reading("GPU-c")]}
    holders = looked(world(site(OWNED), holder(count=2), told=told))
    assert holders.cards(on("GPU-a")) is None


def test_a_holder_by_other_settings_is_replaced_when_no_job_is_there() -> None:
    former, told = holder(count=2, spec_hash="sha256:other"), {0: [reading("GPU-a")]}
    holders = looked(world(site(OWNED), former, told=told, taken=["GPU-a"]))
    assert (list(holders.give_back()), offered(holders)) == ([], [("GPU-a", "")])
    looked(world(site(OWNED), former, told=told), holders=holders)
    assert holders.give_back() == [former]
    looked(world(site(OWNED), former, told=told, wanted=["GPU-a"]), holders=holders)
    assert holders.cards(on("GPU-a")) is None, "its holder is given back"
    assert holders.give_back() == [former]


def test_an_unknown_process_keeps_a_gpu() -> None:
    former = holder(count=2, spec_hash="sha256:other")
    for told in (reading("GPU-a", Process(7, 500)), replace(reading("GPU-a"), used_mib=5000)):
        assert not looked(world(site(OWNED), former, told={0: [told]})).give_back()


@pytest.mark.parametrize("ready", [True, False])
def test_nothing_comes_or_goes_on_a_node_that_does_not_answer(ready: bool) -> None:
    assert bool(looked(world(site(OWNED, ready=ready))).missing) is ready
    former = holder(spec_hash="sha256:other")
    assert bool(looked(world(site(OWNED, ready=ready), former)).give_back()) is ready


@pytest.mark.parametrize("mode", [OWNED, MIXED])
def test_a_holder_makes_way_for_another_driver_when_no_job_is_there(mode: str) -> None:
    there, told = holder(), {0: [reading("GPU-a")]}
    closing = site(mode, 1, ready=False, closing=True)
    holders = looked(world(closing, there, told=told, taken=["GPU-a"]))
    assert (list(holders.give_back()), holders.missing) == ([], [])
    looked(world(closing, there, told=told), holders=holders)
    assert holders.give_back() == [there]
    looked(world(closing), holders=holders)
    assert (list(holders.give_back()), holders.missing) == ([], [])


def test_a_run_that_was_promised_a_gpu_keeps_its_holder() -> None:
    former, told = holder(count=2, spec_hash="sha256:other"), {0: [reading("GPU-a")]}
    holders = looked(world(site(OWNED), former, told=told))
    assert holders.cards(on("GPU-a"))
    assert not holders.give_back()
    looked(world(site(OWNED), former, told=told, taken=["GPU-a"]), holders=holders)
    assert not holders.give_back()


# --- mixed nodes --------------------------------------------------------------------------------


def test_a_mixed_node_offers_what_others_leave_and_holds_nothing() -> None:
    holders = looked(world(site(count=3, foreign=1)))
    assert offered(holders) == [("held-0", ""), ("held-1", ""), ("held-2", "a foreign pod has it")]
    assert not holders.missing
    assert [gpu.memory_mib for gpu in holders.gpus(NODE) or ()] == [15_000] * 3


def test_a_gpu_is_held_when_a_run_waits_for_it_and_its_agent_says_which_it_is() -> None:
    holders = looked(world(site(), wanted=["held-1"]))
    assert holders.missing == [Hold(NODE, 1, 1)]
    assert holders.cards(on("held-1")) is None
    there = holder(1)
    looked(world(site(), there, wanted=["held-1"]), holders=holders)
    assert holders.cards(on("held-1")) is None, "its UUID has not been reported"
    looked(world(site(), there, told={1: [reading("GPU-b")]}, wanted=["held-1"]), holders=holders)
    assert holders.cards(on("held-1")) == {(NODE, "held-1"): "GPU-b"}
    assert holders.names() == {(NODE, "GPU-b"): "held-1"}
    assert [(g.uuid, g.index, g.type, g.memory_mib) for g in holders.gpus(NODE) or ()] == [
        ("held-0", 0, "t4", 16_384),
        ("held-1", 1, "t4", 16_384),
    ]


def test_a_gpu_that_was_unused_for_a_while_is_given_back() -> None:
    there, told = holder(0), {0: [reading("GPU-a")]}
    holders = looked(world(site(), there, told=told, taken=["GPU-a"]), 0.0)
    looked(world(site(), there, told=told), 10.0, holders)
    looked(world(site(), there, told=told), 69.0, holders)
    assert not holders.give_back()
    assert holders.cards(on("held-0")), "until then it is there for the next one"
    looked(world(site(), there, told=told), 70.0, holders)
    assert holders.give_back() == [there]
    assert holders.is_beside(there, ["GPU-a"])
    assert not holders.is_beside(there, ["GPU-b"])
    holders.keep(there)
    looked(world(site(), there, told=told, taken=["GPU-a"]), 71.0, holders)
    assert holders.cards(on("held-0"))


def test_a_run_that_waits_too_long_is_given_up_and_the_gpu_not_offered_for_a_while() -> None:
    pending = holder(0, state=PodState.PENDING, words="Insufficient nvidia.com/gpu")
    holders = Holders(DRESS, WAITS)
    for now in (0.0, 119.0):
        looked(world(site(), pending, wanted=["held-0"]), now, holders)
        assert not holders.given_up(on("held-0"))
        assert not holders.give_back()
    looked(world(site(), pending, wanted=["held-0"]), 120.0, holders)
    why = "no GPU could be reserved: its holder waits: Insufficient nvidia.com/gpu"
    assert holders.given_up(on("held-1", "held-0")) == why
    assert holders.give_back() == [pending]
    looked(world(site()), 121.0, holders)
    assert offered(holders) == [("held-0", why), ("held-1", "")]
    looked(world(site()), 421.0, holders)
    assert offered(holders) == [("held-0", ""), ("held-1", "")]


def test_a_number_means_one_gpu_while_a_job_may_use_it() -> None:
    """The kubelet may give the next holder another GPU, which must not be `held-0` as well."""
    lost = world(site(count=3), taken=["GPU-a"], wanted=["held-0", "held-1"])
    holders = looked(lost)
    assert holders.missing == [Hold(NODE, 3, 1)], "the holder that searches for the lost GPU"
    assert set(holders.suspects()) == {(NODE, "GPU-a")}
    assert {fault for _, fault in offered(holders)} == {"a job on this node has lost its holder"}


def test_a_lost_gpu_is_looked_for_until_it_is_found() -> None:
    place, taken = site(count=3), ["GPU-a"]
    wrong, right = holder(3), holder(4)
    told = {3: [reading("GPU-b")]}
    holders = looked(world(place, wrong, taken=taken))
    assert not holders.missing, "what it has is not known yet"
    looked(world(place, wrong, told=told, taken=taken), holders=holders)
    assert holders.missing == [Hold(NODE, 4, 1)]
    assert not holders.give_back(), "otherwise the kubelet would give it the same GPU again"
    found = told | {4: [reading("GPU-a")]}
    looked(world(place, wrong, right, told=found, taken=taken), holders=holders)
    assert not list(holders.suspects())
    assert not holders.missing
    looked(world(place, wrong, right, told=found, taken=taken), 60.0, holders)
    assert holders.give_back() == [wrong]
    looked(world(place, right, told=found), 61.0, holders)
    looked(world(place, right, told=found), 121.0, holders)
    assert holders.give_back() == [right]


def test_when_somebody_else_was_faster_the_others_are_given_back() -> None:
    place, told = site(count=2, foreign=1), {2: [reading("GPU-b")]}
    holders = looked(world(place, holder(2), told=told, taken=["GPU-a"]))
    looked(world(place, holder(2), told=told, taken=["GPU-a"]), 1.0, holders)
    looked(world(place, holder(2), told=told, taken=["GPU-a"]), 61.0, holders)
    assert holders.give_back() == [holder(2)]
    looked(world(place, taken=["GPU-a"]), 62.0, holders)
    assert not holders.missing


def test_one_gpu_given_to_several_holders_is_used_through_one() -> None:
    told = {0: [reading("GPU-a")], 1: [reading("GPU-a")]}
    holders = looked(world(site(), holder(0), holder(1), told=told))
    assert offered(holders)[1] == ("held-1", "its device plugin gives one GPU to several pods")
    assert holders.cards(on("held-0"))
    assert holders.cards(on("held-1")) is None


def test_reports_are_told_by_the_names_that_the_core_has() -> None:
    told = {0: [reading("GPU-a")], 1: [reading("GPU-b")]}
    holders = looked(world(site(), holder(0), holder(1), told=told))
    first, second = Hold(NODE, 0, 1).name, Hold(NODE, 1, 1).name
    reports = [
        GpuReport(first, 1.0, (reading("GPU-a"),)),
        GpuReport(second, 2.0, (reading("GPU-b"),)),
        GpuReport("n2", 3.0, (reading("GPU-a"),)),
    ]
    assert [
        (report.node, [each.gpu.uuid for each in report.cards])
        for report in holders.reports(reports)
    ] == [(NODE, ["held-0", "held-1"]), ("n2", ["GPU-a"])]


def test_a_holder_of_a_node_that_has_become_exclusive_goes_when_its_jobs_have() -> None:
    there = {Hold(NODE, 0, 1).name: holder(0)}
    assert not looked(HolderWorld({}, there, taken={NODE: {"GPU-a"}})).give_back()
    assert looked(HolderWorld({}, there)).give_back() == [holder(0)]


# --- pods and nodes -----------------------------------------------------------------------------


def kube_pod(made: dict[str, Any], **status: Any) -> KubePod:
    return msgspec.convert({**made, "status": {"phase": "Running", **status}}, KubePod)


def test_a_holder_is_known_again_by_its_annotation() -> None:
    made = holding.manifest(Hold(NODE, 3, 1), DRESS)
    found = holding.holder_of(kube_pod(made))
    assert found == replace(holder(3), uid="")
    made["metadata"]["name"] = "gs-hold-of-another"
    assert holding.holder_of(kube_pod(made)) is None
    made["metadata"]["annotations"] = {}
    assert holding.holder_of(kube_pod(made)) is None


def test_another_gpu_count_or_image_is_another_hash() -> None:
    hold = Hold(NODE, 0, 2)
    hashes = {
        holding.spec_hash(hold, DRESS),
        holding.spec_hash(replace_count(hold, 3), DRESS),
        holding.spec_hash(hold, replace(DRESS, image="agent:2")),
    }
    assert len(hashes) == 3


def replace_count(hold: Hold, gpus: int) -> Hold:
    return Hold(hold.node, hold.number, gpus)


def test_a_holder_asks_for_gpus_and_for_no_rights() -> None:
    made = holding.manifest(Hold("a-long.name." + "x" * 80, 0, 8), DRESS)
    (container,) = made["spec"]["containers"]
    assert container["resources"]["limits"][pods.GPU_RESOURCE] == "8"
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert made["spec"]["hostPID"] is False
    assert len(made["metadata"]["labels"][holding.NODE]) == 63


def kube_node(mode: str | None, gpus: str = "4") -> KubeNode:
    labels = {holding.MODE: mode} if mode is not None else {}
    told = {"metadata": {"name": NODE, "labels": labels}}
    status = {"allocatable": {pods.GPU_RESOURCE: gpus}}
    return msgspec.convert({**told, "status": status}, KubeNode)


def test_a_label_says_how_a_node_is_shared_and_else_the_settings() -> None:
    assert holding.site_of(kube_node("exclusive"), OWNED, 0) is None
    owned = holding.site_of(kube_node(None), OWNED, 0)
    mixed = holding.site_of(kube_node("mixed"), OWNED, None)
    assert owned
    assert (owned.mode, owned.count, owned.foreign) == (OWNED, 4, 0)
    assert mixed
    assert (mixed.mode, mixed.foreign) == (MIXED, 4), "they are not counted yet"
    with pytest.raises(Rejected, match=r"node n1: label .*: 'ours' is not a valid mode"):
        holding.site_of(kube_node("ours"), OWNED, 0)


def asking(
    *limits: int, first: int = 0, phase: str = "Running", labels: dict[str, str] | None = None
) -> RequestingPod:
    containers = [{"resources": {"limits": {pods.GPU_RESOURCE: str(n)}}} for n in limits]
    told = {
        "metadata": {"name": "p", "labels": labels or {}},
        "spec": {
            "containers": [*containers, {}],
            "initContainers": [{"resources": {"limits": {pods.GPU_RESOURCE: str(first)}}}],
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(told, RequestingPod)


def test_what_pods_of_others_were_given_is_counted() -> None:
    assert holding.foreign(asking(1, 2)) == 3
    assert holding.foreign(asking(1, first=4)) == 4
    assert holding.foreign(asking()) == 0
    assert holding.foreign(asking(2, phase="Succeeded")) == 0
    ours = {pods.MANAGED_BY: pods.OURS, holding.ROLE: "holder"}
    assert holding.foreign(asking(2, labels=ours)) == 0


# --- beside foreign pods ------------------------------------------------------------------------


@dataclass
class Worker:
    names: tuple[str, ...]  # of its GPUs in the core
    gpus: tuple[str, ...]  # their UUIDs


@dataclass
class Kubelet:
    """Gives any free GPUs to pods that request them."""

    gpus: tuple[str, ...]
    given: dict[str, tuple[str, ...]] = field(default_factory=dict)  # by the uid of a pod

    def gives(self, uid: str, count: int, choice: st.DataObject) -> bool:
        free = [c for c in self.gpus if not any(c in given for given in self.given.values())]
        if len(free) < count:
            return False
        self.given[uid] = tuple(choice.draw(st.permutations(free))[:count])
        return True


class Beside(RuleBasedStateMachine):
    """A node with foreign pods that start and end, lost holders, and restarted daemons."""

    mode = MIXED

    def __init__(self) -> None:
        super().__init__()
        self.now, self.numbers = 0.0, count()
        self.kubelet = Kubelet(("GPU-a", "GPU-b", "GPU-c"))
        self.holders = Holders(DRESS, WAITS)
        self.there: dict[str, Holder] = {}
        self.foreign: dict[str, str] = {}  # foreign pods
        self.waiting: list[tuple[str, ...]] = []
        self.workers: list[Worker] = []
        self.lost: set[str] = set()  # GPUs that have lost their holders under a job
        self.told: set[str] = set()  # holders with agents that have reported

    # -- foreign pods and the kubelet

    @rule(choice=st.data())
    def a_foreign_pod_starts(self, choice: st.DataObject) -> None:
        uid = f"foreign-{next(self.numbers)}"
        if self.kubelet.gives(uid, 1, choice):
            self.foreign[uid] = uid

    @precondition(lambda self: self.foreign)
    @rule(choice=st.data())
    def a_foreign_pod_ends(self, choice: st.DataObject) -> None:
        uid = choice.draw(st.sampled_from(sorted(self.foreign)))
        del self.foreign[uid], self.kubelet.given[uid]

    @precondition(lambda self: self.there)
    @rule(choice=st.data())
    def a_holder_is_lost(self, choice: st.DataObject) -> None:
        name = choice.draw(st.sampled_from(sorted(self.there)))
        used = {gpu for worker in self.workers for gpu in worker.gpus}
        self.lost |= used & set(self.kubelet.given.get(self.there[name].uid, ()))
        self._gone(name)

    @rule(choice=st.data())
    def the_kubelet_gives(self, choice: st.DataObject) -> None:
        for name, each in sorted(self.there.items()):
            pending = each.state is PodState.PENDING
            if pending and self.kubelet.gives(each.uid, each.hold.count, choice):
                self.there[name] = replace(each, state=PodState.RUNNING)

    @rule(choice=st.data())
    def agents_report(self, choice: st.DataObject) -> None:
        running = sorted(h.uid for h in self.there.values() if h.state is PodState.RUNNING)
        if running:
            self.told |= set(choice.draw(st.lists(st.sampled_from(running))))

    # -- jobs

    @rule(choice=st.data())
    def a_run_is_to_begin(self, choice: st.DataObject) -> None:
        usable = [gpu.uuid for gpu in self.holders.gpus(NODE) or () if not gpu.fault]
        if usable and len(self.waiting) < 3:
            some = st.lists(st.sampled_from(usable), min_size=1, max_size=2, unique=True)
            self.waiting.append(tuple(choice.draw(some)))

    @precondition(lambda self: self.workers)
    @rule(choice=st.data())
    def a_run_ends(self, choice: st.DataObject) -> None:
        self.workers.pop(choice.draw(st.integers(0, len(self.workers) - 1)))
        self.lost &= {gpu for worker in self.workers for gpu in worker.gpus}

    # -- the scheduler

    @rule(seconds=st.sampled_from([0.0, 1.0, 60.0, 130.0, 400.0]))
    def we_look(self, seconds: float) -> None:
        self.now += seconds
        self._look()
        self.we_go_on()

    @rule()
    def we_go_on(self) -> None:
        for names in list(self.waiting):
            self._go_on(names)

    @rule()
    def we_keep(self) -> None:
        for hold in self.holders.missing:
            if hold.name not in self.there:
                spec_hash = holding.spec_hash(hold, DRESS)
                uid = f"holder-{next(self.numbers)}"
                self.there[hold.name] = Holder(hold, uid, PodState.PENDING, spec_hash)
        live = {gpu for worker in self.workers for gpu in worker.gpus}
        for each in self.holders.give_back():
            there = self.there.get(each.name)
            if self.holders.is_beside(each, live):
                self.holders.keep(each)
            elif there and there.uid == each.uid:
                self._gone(each.name)

    @rule()
    def the_daemon_is_restarted(self) -> None:
        self.holders, self.waiting = Holders(DRESS, WAITS), []
        self._look()

    # -- invariants

    @invariant()
    def no_gpu_is_owned_twice(self) -> None:
        others = {gpu for uid in self.foreign for gpu in self.kubelet.given[uid]}
        ours = {gpu for worker in self.workers for gpu in worker.gpus}
        assert ours & others <= self.lost

    @invariant()
    def a_name_means_one_gpu(self) -> None:
        pairs = {pair for w in self.workers for pair in zip(w.names, w.gpus, strict=True)}
        assert len({name for name, _ in pairs}) == len(pairs)
        assert len({gpu for _, gpu in pairs}) == len(pairs)

    def teardown(self) -> None:
        """When all pods have ended, the node is as it was."""
        self.workers.clear()
        self.waiting.clear()
        for uid in self.foreign:
            del self.kubelet.given[uid]
        self.foreign.clear()
        for _ in range(8):
            self.now += 400.0
            self._look()
            self.we_keep()
            for name, each in self.there.items():
                if each.state is PodState.PENDING and not self.kubelet.given:
                    self.kubelet.given[each.uid] = self.kubelet.gpus[: each.hold.count]
                    self.there[name] = replace(each, state=PodState.RUNNING)
            self.told |= {each.uid for each in self.there.values()}
        assert tuple(each.hold.count for each in self.there.values()) == self.kept

    kept: Sequence[int] = ()

    # -- below

    def _look(self) -> None:
        told = {
            each.name: tuple(reading(uuid) for uuid in self.kubelet.given[each.uid])
            for each in self.there.values()
            if each.uid in self.told and each.uid in self.kubelet.given
        }
        taken = {gpu for worker in self.workers for gpu in worker.gpus}
        wanted = {name for names in self.waiting for name in names}
        place = HeldNodeSpec(NODE, self.mode, 3, KIND, foreign=len(self.foreign))
        at = HolderWorld({NODE: place}, dict(self.there), told, {NODE: taken}, {NODE: wanted})
        self.holders.look(at, self.now)

    def _go_on(self, names: tuple[str, ...]) -> None:
        shares = on(*names)
        uuids = self.holders.cards(shares)
        if uuids is not None:
            given = (self.kubelet.given.get(each.uid, ()) for each in self.there.values())
            held = {uuid for some in given for uuid in some}
            self.lost |= {
                *uuids.values()
            } - held  # lost since the last observation, which cannot be known
            self.workers.append(Worker(names, tuple(uuids[(NODE, name)] for name in names)))
            self.waiting.remove(names)
        elif self.holders.given_up(shares):
            self.waiting.remove(names)

    def _gone(self, name: str) -> None:
        uid = self.there.pop(name).uid
        self.kubelet.given.pop(uid, None)
        self.told.discard(uid)


class BesideOwned(Beside):
    mode = OWNED
    kept = (3,)


TestBeside = Beside.TestCase
TestBesideOwned = BesideOwned.TestCase
for case in (TestBeside, TestBesideOwned):
    case.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
