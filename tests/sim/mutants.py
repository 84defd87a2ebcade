"""Faults of one line, put into production modules as they are imported: each must be found by the simulator.

A simulator that finds nothing proves nothing until it is known what it would find.  A pattern that no longer stands in
its module exactly once is an error: the code has moved on, and the fault has to follow it.
"""

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = Path(__file__).parents[2] / "pylog"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: *old*, which stands once in *file*, becomes *new*.

    Attributes:
        seed: one that finds it, tried first; 0 where none is known.  It shows the same as walking there from seed 1,
            in a second: another change of code or schedules makes it a run like any other.
        story: the one that finds it (`tests.sim.stories`), where the seeds' world lacks what it takes.
    """

    name: str
    file: str
    old: str
    new: str
    seed: int = 0
    story: str = ""

    @property
    def module(self) -> str:
        """The module's name."""
        return "pylog." + self.file.removesuffix(".py").replace("/", ".")

    def applied(self) -> str:
        """Return the module's source with the fault in it.

        Raises:
            ValueError: the pattern does not stand there once.
        """
        source = (PACKAGE / self.file).read_text()
        if source.count(self.old) != 1:
            found = source.count(self.old)
            raise ValueError(f"mutant {self.name}: its pattern stands {found} times in pylog/{self.file}, not once")
        return source.replace(self.old, self.new)


MUTANTS: Sequence[Mutant] = (
    # -- who has a record ------------------------------------------------------------------------------------------
    Mutant(
        "acknowledge-before-the-isr-has-it",
        "replica/leader.py",
        "return max(current, self.common_end_offset(log_end_offset))",
        "return log_end_offset",
        seed=1,
    ),
    Mutant(
        "forget-the-maximal-isr",
        "replica/leader.py",
        "for member in self._maximal_isr():",
        "for member in self.isr:",
        seed=10,
    ),
    Mutant(
        "unknown-progress-is-no-obstacle",
        "replica/leader.py",
        "            if member != self._broker_id:\n",
        "            if member != self._broker_id and self._followers[member].log_end_offset != UNKNOWN:\n",
        seed=2,
    ),
    Mutant(
        "join-the-isr-without-catching-up",
        "replica/leader.py",
        "return is_fetching and follower.log_end_offset >= max(high_watermark, self._epoch_start)",
        "return is_fetching",
        seed=1,
    ),
    Mutant(
        "join-the-isr-below-the-start-of-the-epoch",
        "replica/leader.py",
        "follower.log_end_offset >= max(high_watermark, self._epoch_start)",
        "follower.log_end_offset >= high_watermark",
        seed=162,
    ),
    Mutant(
        "count-progress-without-a-look-at-epochs",
        "broker/data/progress.py",
        "if part.current_leader_epoch != partition.leader_epoch or divergence(log, part):",
        "if part.fetch_offset < 0:",
        seed=38,
    ),
    Mutant(
        "count-progress-of-a-diverging-log",
        "broker/data/progress.py",
        "if part.current_leader_epoch != partition.leader_epoch or divergence(log, part):",
        "if part.current_leader_epoch != partition.leader_epoch:",
        seed=3,
    ),
    Mutant(
        "acknowledge-before-the-flush",
        "log/log.py",
        "return self.recovery_point if self.is_flushing else self.log_end_offset",
        "return self.log_end_offset",
        seed=113,
    ),
    Mutant(
        "report-progress-before-the-flush",
        "broker/data/replication.py",
        "        await owner.synced(list(unsynced.values()))\n",
        "",
        seed=78,
    ),
    # -- followers -------------------------------------------------------------------------------------------------
    Mutant(
        "truncate-by-high-watermark",
        "broker/data/replication.py",
        "        log.truncate_to(offset)\n",
        "        log.truncate_to(log.high_watermark)\n",
        seed=28,
    ),
    Mutant(
        "never-truncate",
        "broker/data/reading.py",
        "                result.diverging = divergence(log, part)\n",
        "",
        seed=1,
    ),
    Mutant(
        "fetch-without-the-last-epoch",
        "broker/data/replication.py",
        "            log.epochs.latest,\n            log.lasting_start_offset,\n",
        "            -1,\n            log.lasting_start_offset,\n",
        seed=1,
    ),
    Mutant(
        "tell-the-leaders-high-watermark",
        "broker/data/partitions.py",
        "high_watermark = min(high_watermark, log.log_end_offset)",
        "pass",
        seed=1,
    ),
    Mutant(
        "keep-an-epoch-without-records",
        "log/log.py",
        "            self.epochs.truncate_end(self.log_end_offset, save=False)\n            self._leader_epoch",
        "            self._leader_epoch",
        seed=5,
    ),
    Mutant(
        "cut-where-ones-own-epoch-ends",
        "replica/follower.py",
        "return min(own_end, leaders_end, log_end_offset)",
        "return min(own_end, log_end_offset)",
        seed=1,
    ),
    Mutant(
        "open-every-log-as-clean",
        "log/directory.py",
        "clean=is_new or (self.was_clean and key in self._unopened),",
        "clean=True,",
        seed=7,
    ),
    Mutant(
        "believe-a-torn-checkpoint",
        "log/checkpoint.py",
        '    if not text.endswith("\\n"):\n',
        "    if not text:\n",
        seed=31,
    ),
    # -- elections and the controller --------------------------------------------------------------------------------
    Mutant(
        "elect-outside-the-isr",
        "cluster/election.py",
        "leader = partition.leader if partition.leader in isr else _first(partition.replicas, isr)",
        "leader = partition.leader if partition.leader in isr else _first(partition.replicas, staying)",
        seed=7,
    ),
    Mutant(
        "forget-the-leader-epoch",
        "cluster/election.py",
        "    return replace(partition, leader=leader, isr=isr, leader_epoch=partition.leader_epoch + 1)\n\n\n"
        "def elect_doubtful",
        "    return replace(partition, leader=leader, isr=isr)\n\n\ndef elect_doubtful",
        seed=1,
    ),
    Mutant(
        "write-without-the-fence",
        "store/tree.py",
        "check = Check(znodes.CONTROLLER_EPOCH, fence.version)",
        "check = Check(znodes.CONTROLLER_EPOCH, -1)",
        seed=2,
    ),
    Mutant(
        "hide-an-unclean-stop",
        "broker/control/membership.py",
        "directory.cluster_id, directory.was_clean",
        "directory.cluster_id, True",
        seed=21,
    ),
    Mutant(
        "count-the-unclean-as-in-sync",
        "cluster/controller.py",
        "unclean = {broker_id for broker_id, broker in brokers.items() if not broker.is_clean}",
        "unclean: set[int] = set()",
        seed=10,
    ),
    Mutant(
        "elect-the-shortest-log",
        "cluster/election.py",
        "best = max(ends.values())",
        "best = min(ends.values())",
        seed=10,
    ),
    Mutant(
        "apply-a-stale-image",
        "broker/control/images.py",
        "if image is None or image.order <= self.current.order:",
        "if image is None:",
        seed=79,
    ),
    Mutant(
        "change-an-isr-that-has-changed",
        "cluster/controller.py",
        "elif state.partition_epoch != wanted.partition_epoch:",
        "elif state.partition_epoch < wanted.partition_epoch:",
        seed=95,
    ),
    Mutant(
        "shut-everybody-out-after-a-full-disk",
        "broker/data/replication.py",
        "                if log is None or log.offline is not None:\n                    continue\n",
        "                continue\n",
        seed=19,
    ),
    Mutant(
        "rest-by-the-clock-on-the-wall",
        "broker/clock.py",
        "return int(time.monotonic() * 1000)",
        "return time.time_ns() // 1_000_000",
        seed=379,
    ),
    # -- partitions on their way to other brokers ----------------------------------------------------------------------
    Mutant(
        "end-a-move-before-all-are-in-sync",
        "cluster/reassignment.py",
        "if not set(target) <= set(state.isr):",
        "if not set(target) & set(state.isr):",
        seed=2,
    ),
    Mutant(
        "keep-whom-a-called-off-move-added",
        "cluster/reassignment.py",
        "origin = _without(state.replicas, before.adding if before else ())",
        "origin = state.replicas",
        seed=2,
    ),
    Mutant(
        "come-back-in-the-same-epoch",
        "cluster/reassignment.py",
        "if _without(replicas, state.replicas):",
        "if not replicas:",
        seed=73,
    ),
    # -- producers and groups ----------------------------------------------------------------------------------------
    Mutant(
        "store-a-batch-twice",
        "log/producers.py",
        "                    return batch\n",
        "                    return None\n",
        seed=1,
    ),
    Mutant(
        "age-producers-by-their-records",
        "log/log.py",
        "self.producers.note(header, header.base_offset, now_ms)",
        "self.producers.note(header, header.base_offset, header.max_timestamp)",
        seed=2,
    ),
    Mutant(
        "commit-offsets-on-one-replica",
        "broker/groups/shard_log.py",
        "return ErrorCode.NONE if wait is None else wait",
        "return ErrorCode.NONE",
        seed=3,
    ),
    Mutant(
        "load-groups-to-the-high-watermark",
        "broker/groups/shard.py",
        "offset, end = log.log_start_offset, log.log_end_offset",
        "offset, end = log.log_start_offset, log.high_watermark",
        seed=1,
    ),
    Mutant(
        "answer-before-what-was-read-is-everywhere",
        "broker/groups/shard.py",
        "return max(in_sync, log.high_watermark) >= self._end_offset",
        "return True",
        seed=85,
    ),
    Mutant(
        "commit-under-a-stale-generation",
        "group/state.py",
        "if generation != self.generation:",
        "if generation > self.generation:",
        seed=1,
    ),
    Mutant(
        "assign-before-it-is-written",
        "broker/groups/shard.py",
        "                    context.tasks.spawn(self._persist(group, action, appended))\n",
        "                    todo += group.persisted(action, ErrorCode.NONE, context.now_ms())\n",
        seed=2,
    ),
    # -- topics that are deleted and made again, logs that begin late -----------------------------------------------
    Mutant(
        "count-progress-of-another-topic",
        "broker/data/progress.py",
        "            if part.topic_id and part.topic_id != partition.topic_id.bytes:\n                continue",
        "            if part.fetch_offset < 0:\n                continue",
        story="remake-beside-a-deaf-follower",
    ),
    Mutant(
        "serve-a-follower-by-name",
        "broker/data/reading.py",
        "            if part.topic_id:\n                self._check_topic_id(request.replica_id, part, partition)\n"
        "                result.topic_id = part.topic_id\n",
        "",
        story="remake-beside-a-deaf-leader",
    ),
    Mutant(
        "take-the-start-before-the-high-watermark",
        "broker/data/replication.py",
        "        self._partitions.follow(partition, result.high_watermark)\n        # Only then",
        "        if result.log_start_offset > log.log_start_offset:\n"
        "            log.delete_records_before(min(result.log_start_offset, log.log_end_offset))\n"
        "        self._partitions.follow(partition, result.high_watermark)\n        # Only then",
        story="trim-before-the-followers-know",
    ),
    Mutant(
        "count-a-fetch-beyond-the-end",
        "broker/data/progress.py",
        "if not log.log_start_offset <= part.fetch_offset <= log.log_end_offset:",
        "if part.fetch_offset < 0:",
        story="die-beside-an-empty-log-beyond-the-end",
    ),
    Mutant(
        "begin-anew-where-the-leader-ends",
        "broker/data/replication.py",
        "        log.truncate_fully_and_start_at(result.log_start_offset)\n",
        "        log.truncate_fully_and_start_at(max(result.log_start_offset, result.high_watermark))\n",
        story="meet-an-empty-log-beyond-the-end",
    ),
    Mutant(
        "answer-a-deletion-before-the-followers-know",
        "broker/data/partitions.py",
        "return _NONE if self.low_watermark() >= self.offset else None",
        "return _NONE",
        story="trim-and-kill-the-leader",
    ),
    Mutant(
        "tell-a-start-that-is-not-written-down",
        "broker/data/replication.py",
        "            log.lasting_start_offset,\n",
        "            log.log_start_offset,\n",
        story="trim-and-lose-power-everywhere",
    ),
    # -- out of touch ------------------------------------------------------------------------------------------------
    Mutant(
        "send-clients-back-while-out-of-touch",
        "broker/data/partitions.py",
        "        if not self.is_in_touch(partition):\n",
        "        if partition.leading is None:\n",
        story="wake-as-a-deposed-leader",
    ),
    Mutant(
        "tell-commits-while-out-of-touch",
        "broker/groups/coordinator.py",
        "if partition is None or not self._partitions.is_in_touch(partition):",
        "if partition is None:",
        story="wake-as-a-deposed-coordinator",
    ),
    Mutant(
        "forget-the-epoch-of-an-emptied-log",
        "log/recovery.py",
        "        if segments[-1].next_offset <= start:\n",
        "        if segments[-1].next_offset < 0:\n",
        story="lose-power-after-a-trim",
    ),
    Mutant(
        "keep-offsets-of-a-topic-made-again",
        "broker/groups/coordinator.py",
        "gone = {name for name, topic_id in self._known_topics.items() if topics.get(name) != topic_id}",
        "gone = {name for name in self._known_topics if name not in topics}",
        story="remake-beside-a-deaf-coordinator",
    ),
)


class _Loader(SourceFileLoader):
    """Loads one module with the fault in it, and never from a cache."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(PACKAGE / mutant.file))
        self._source = mutant.applied()

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._module = mutant.module
        self._loader = _Loader(mutant)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_file_location(fullname, self._loader.path, loader=self._loader)


def find(name: str) -> Mutant:
    """Return the mutant of this name.

    Raises:
        ValueError: there is none.
    """
    for mutant in MUTANTS:
        if mutant.name == name:
            return mutant
    raise ValueError(f"no mutant {name!r}; known: {', '.join(mutant.name for mutant in MUTANTS)}")


def install(name: str) -> None:
    """Let imports from now on find the fault in its module."""
    mutant = find(name)
    assert mutant.module not in sys.modules, f"{mutant.module} is imported already"
    sys.meta_path.insert(0, _Finder(mutant))
