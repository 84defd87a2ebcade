"""Faults put into functions of the production code as it is imported: each must be found by the simulator.

A simulator that finds nothing proves nothing until it is known what it would find.  A fault names its function and
statements of it, compared as code: comments, line breaks and the place of the function in its module do not matter.  A
function that no longer has its statements exactly once is an error: the code has moved on, and the fault has to follow.
"""

import ast
import importlib.util
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = Path(__file__).parents[2] / "pylog"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: of a function the statements *old* become *new*.

    Attributes:
        file: module of the function, below `pylog`.
        function: its name, behind that of its class.
        old: a part of one line of it as `ast.unparse` writes them, or several whole lines, indented as if it were all.
        new: what stands in its place, "" for nothing.
        seed: one that finds it, tried first; 0 where none is known.  It shows the same as walking there from seed 1,
            in a second: another change of code or schedules makes it a run like any other.
        stage: whose runs bring about what it takes (`tests.sim.faults`): their seeds are tried before all others.
        story: the one that finds it (`tests.sim.stories`), where the seeds' world lacks what it takes.
    """

    name: str
    file: str
    function: str
    old: str
    new: str
    seed: int = 0
    stage: str = ""
    story: str = ""

    @property
    def module(self) -> str:
        """The module's name."""
        return "pylog." + self.file.removesuffix(".py").replace("/", ".")

    def applied(self) -> ast.Module:
        """Return the module's code with the fault in it.

        Raises:
            ValueError: there is no such function, or it has the statements not once.
        """
        tree = ast.parse((PACKAGE / self.file).read_text())
        found = [(body, number) for name, body, number in _functions(tree) if name == self.function]
        if len(found) != 1:
            raise ValueError(f"mutant {self.name}: pylog/{self.file} has {len(found)} functions {self.function}")
        (body, number) = found[0]
        lines, old = ast.unparse(body[number]).splitlines(), self.old.splitlines()
        places = [at for at in range(len(lines)) if _stands(old, lines[at : at + len(old)])]
        if len(places) != 1 or sum(line.count(self.old) for line in lines) > 1:
            raise ValueError(f"mutant {self.name}: {self.function} has its code {len(places)} times, not once")
        (at,) = places
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        new = lines[at].strip().replace(old[0], self.new) if len(old) == 1 else self.new
        lines[at : at + len(old)] = textwrap.indent(new or "pass", indent).splitlines()
        (changed,) = ast.parse("\n".join(lines)).body
        ast.increment_lineno(changed, body[number].lineno - 1)
        body[number] = changed
        return tree


def note_seeds(text: str, seeds: Mapping[str, int]) -> str:
    """Return the text of this module with other seeds noted, by name of the fault."""
    lines = text.splitlines(keepends=True)
    for call in ast.walk(ast.parse(text)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == Mutant.__name__):
            continue
        name = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
        for keyword in call.keywords:
            place = keyword.value
            if keyword.arg == "seed" and isinstance(name, str) and name in seeds:
                assert place.lineno == place.end_lineno, f"{name}: a seed over several lines"
                line = lines[place.lineno - 1]
                lines[place.lineno - 1] = f"{line[: place.col_offset]}{seeds[name]}{line[place.end_col_offset :]}"
    return "".join(lines)


def _stands(old: Sequence[str], lines: Sequence[str]) -> bool:
    if len(old) == 1:
        return old[0] in lines[0]
    return [line.strip() for line in old] == [line.strip() for line in lines]


def _functions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, list[ast.stmt], int]]:
    """Yield the name of every function and method, and where it stands: a list of statements and a number in it."""
    for number, node in enumerate(tree.body):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, tree.body, number


MUTANTS: Sequence[Mutant] = (
    # -- who has a record ------------------------------------------------------------------------------------------
    Mutant(
        "acknowledge-before-the-isr-has-it",
        "replica/leader.py",
        "Leader.high_watermark",
        "return max(current, self.common_end_offset(log_end_offset))",
        "return log_end_offset",
        seed=1,
    ),
    Mutant(
        "forget-the-maximal-isr",
        "replica/leader.py",
        "Leader.common_end_offset",
        "for member in self._maximal_isr():",
        "for member in self.isr:",
        story="write-while-a-wish-is-granted-and-not-answered",
    ),
    Mutant(
        "unknown-progress-is-no-obstacle",
        "replica/leader.py",
        "Leader.common_end_offset",
        "if member != self._broker_id:",
        "if member != self._broker_id and self._followers[member].log_end_offset != UNKNOWN:",
        seed=2,
    ),
    Mutant(
        "join-the-isr-without-catching-up",
        "replica/leader.py",
        "Leader._may_join",
        "return is_fetching and follower.log_end_offset >= max(high_watermark, self._epoch_start)",
        "return is_fetching",
        seed=2,
    ),
    Mutant(
        "let-in-whom-the-leader-leaves-out-at-once",
        "replica/leader.py",
        "Leader.wanted_change",
        "not self._is_late(follower, log_end_offset, now_ms) and (",
        "(broker_id not in self.isr or not self._is_late(follower, log_end_offset, now_ms)) and (",
        story="take-in-nobody-whose-disk-is-full",
    ),
    Mutant(
        "join-the-isr-below-the-start-of-the-epoch",
        "replica/leader.py",
        "Leader._may_join",
        "return is_fetching and follower.log_end_offset >= max(high_watermark, self._epoch_start)",
        "return is_fetching and follower.log_end_offset >= high_watermark",
        seed=162,
        stage="join-in-the-gap",
    ),
    Mutant(
        "count-progress-without-a-look-at-epochs",
        "broker/data/progress.py",
        "FollowerFetches.note",
        "if part.current_leader_epoch != partition.leader_epoch or divergence(log, part):",
        "if part.fetch_offset < 0:",
        story="read-beside-a-follower-that-is-to-cut-its-log",
    ),
    Mutant(
        "count-progress-of-a-diverging-log",
        "broker/data/progress.py",
        "FollowerFetches.note",
        "if part.current_leader_epoch != partition.leader_epoch or divergence(log, part):",
        "if part.current_leader_epoch != partition.leader_epoch:",
        story="read-beside-a-follower-that-is-to-cut-its-log",
    ),
    Mutant(
        "acknowledge-before-the-flush",
        "log/log.py",
        "Log.countable_end_offset",
        "return self.recovery_point if self.is_flushing else self.log_end_offset",
        "return self.log_end_offset",
        seed=164,
        stage="cut-power-at-an-acknowledgement",
    ),
    Mutant(
        "report-progress-before-the-flush",
        "broker/data/replication.py",
        "_Fetcher._exchange",
        "failed = await owner.synced([one for key, one in unsynced.items() if key not in resting])",
        "failed: list[Partition] = []",
        story="cut-power-before-a-follower-has-synced",
    ),
    # -- followers -------------------------------------------------------------------------------------------------
    Mutant(
        "truncate-by-high-watermark",
        "broker/data/replication.py",
        "Replication._cut",
        "log.truncate_to(offset)",
        "log.truncate_to(log.high_watermark)",
        seed=28,
        stage="die-before-the-news",
    ),
    Mutant(
        "never-truncate",
        "broker/data/reading.py",
        "Reader.read_partition",
        "result.diverging = divergence(log, part)",
        "",
        seed=18,
        stage="kill-leader-behind-a-cut",
    ),
    Mutant(
        "fetch-without-the-last-epoch",
        "broker/data/replication.py",
        "Replication.question",
        "log.epochs.latest",
        "-1",
        seed=18,
        stage="kill-leader-behind-a-cut",
    ),
    Mutant(
        "tell-the-leaders-high-watermark",
        "broker/data/partitions.py",
        "Partitions.follow",
        "high_watermark = min(high_watermark, log.log_end_offset)",
        "pass",
        seed=2,
    ),
    Mutant(
        "trust-a-cut-that-was-not-synced",
        "log/log.py",
        "Log.lower_recovery_point",
        "offset if is_between else offset - 1",
        "offset",
        story="lose-power-where-a-cut-ended-a-segment",
    ),
    Mutant(
        "keep-an-epoch-without-records",
        "log/log.py",
        "Log.truncate_to",
        "self.epochs.truncate_end(self.log_end_offset, save=False)",
        "",
        seed=138,
        stage="kill-leader-behind-a-cut",
    ),
    Mutant(
        "cut-where-ones-own-epoch-ends",
        "replica/divergence.py",
        "truncation_offset",
        "return min(own_end, leaders_end, log_end_offset)",
        "return min(own_end, log_end_offset)",
        seed=18,
        stage="kill-leader-behind-a-cut",
    ),
    Mutant(
        "open-every-log-as-clean",
        "log/directory.py",
        "LogDirectory._open",
        "clean=is_new or (self.was_clean and key in self._unopened)",
        "clean=True",
        seed=21,
    ),
    Mutant(
        "believe-a-torn-checkpoint",
        "log/checkpoint.py",
        "read_lines",
        "if not text.endswith('\\n'):",
        "if not text:",
        seed=357,
        stage="tear-epochs",
    ),
    # -- elections and the controller --------------------------------------------------------------------------------
    Mutant(
        "elect-outside-the-isr",
        "cluster/election.py",
        "elect",
        "leader = partition.leader if partition.leader in isr else _first(partition.replicas, isr)",
        "leader = partition.leader if partition.leader in isr else _first(partition.replicas, staying)",
        seed=5,
    ),
    Mutant(
        "forget-the-leader-epoch",
        "cluster/election.py",
        "elect",
        "return replace(partition, leader=leader, isr=isr, leader_epoch=partition.leader_epoch + 1)",
        "return replace(partition, leader=leader, isr=isr)",
        seed=1,
    ),
    Mutant(
        "write-without-the-fence",
        "store/tree.py",
        "ClusterTree.write",
        "check = Check(znodes.CONTROLLER_EPOCH, fence.version)",
        "check = Check(znodes.CONTROLLER_EPOCH, -1)",
        seed=19,
    ),
    Mutant(
        "hide-an-unclean-stop",
        "broker/control/membership.py",
        "Membership._join",
        "directory.was_clean",
        "True",
        seed=49,
        stage="kill-everybody-else-in-the-dark",
    ),
    Mutant(
        "count-the-unclean-as-in-sync",
        "cluster/controller.py",
        "Controller.settle",
        "unclean = {broker_id for broker_id, broker in brokers.items() if not broker.is_clean}",
        "unclean: set[int] = set()",
        seed=21,
        stage="kill-everybody-else-in-the-dark",
    ),
    Mutant(
        "elect-before-all-that-are-back-have-reported",
        "cluster/controller.py",
        "Controller.plan_recovery",
        "may_lose = self._may_lose(topic) and (not is_anybody_silent)",
        "may_lose = self._may_lose(topic)",
        story="elect-before-all-that-are-back-have-reported",
    ),
    Mutant(
        "elect-the-shortest-log",
        "cluster/election.py",
        "fullest",
        "best = max((log for log in ends.values() if log[1] >= committed))",
        "best = min((log for log in ends.values() if log[1] >= committed))",
        seed=21,
        stage="kill-everybody-else-in-the-dark",
    ),
    Mutant(
        "apply-a-stale-image",
        "broker/control/images.py",
        "Images._apply_forever",
        "if image is None or image.order <= self.current.order:",
        "if image is None:",
        seed=79,
        stage="sleep-over-an-image",
    ),
    Mutant(
        "change-an-isr-that-has-changed",
        "cluster/controller.py",
        "Controller.plan_isr",
        "elif state.partition_epoch != wanted.partition_epoch:",
        "elif state.partition_epoch < wanted.partition_epoch:",
        story="hear-a-wish-after-a-follower-has-left",
    ),
    Mutant(
        "shut-everybody-out-after-a-full-disk",
        "broker/data/replication.py",
        "Replication._wanted_changes",
        ("if log is None or log.offline is not None:\n    continue"),
        "continue",
        seed=12,
    ),
    Mutant(
        "rest-by-the-clock-on-the-wall",
        "broker/clock.py",
        "steady_ms",
        "return time.clock_gettime_ns(_STEADY) // 1000000",
        "return time.time_ns() // 1000000",
        seed=259,
        stage="turn-clock",
    ),
    # -- partitions on their way to other brokers ----------------------------------------------------------------------
    Mutant(
        "end-a-move-before-all-are-in-sync",
        "cluster/reassignment.py",
        "finish_move",
        "if not set(target) <= set(state.isr):",
        "if not set(target) & set(state.isr):",
        seed=2,
    ),
    Mutant(
        "end-a-move-by-those-who-came-alone",
        "cluster/reassignment.py",
        "finish_move",
        "if set(state.isr) <= set(move.adding):",
        "if not state.isr:",
        story="elect-uncleanly-the-only-copy-that-has-just-begun",
    ),
    Mutant(
        "elect-whom-a-move-adds-first",
        "cluster/election.py",
        "elect",
        "leader = _first((*move.removing, *had_all, *move.adding), live)",
        "leader = _first(partition.replicas, live)",
        story="elect-uncleanly-beside-a-copy-that-has-just-begun",
    ),
    Mutant(
        "keep-whom-a-called-off-move-added",
        "cluster/reassignment.py",
        "begin_move",
        "origin = _without(state.replicas, before.adding if before else ())",
        "origin = state.replicas",
        seed=15,
    ),
    Mutant(
        "come-back-in-the-same-epoch",
        "cluster/reassignment.py",
        "begin_move",
        "if _without(replicas, state.replicas):",
        "if not replicas:",
        story="come-back-before-hearing-of-having-left",
    ),
    # -- producers and groups ----------------------------------------------------------------------------------------
    Mutant(
        "hold-back-for-ever",
        "broker/data/held_back.py",
        "HeldBack._forget_old",
        "if self.first[oldest].until_ms > now_ms:",
        "if self.first:",
        seed=41,
    ),
    Mutant(
        "store-a-batch-twice",
        "log/producers.py",
        "Producers.check",
        "return batch",
        "return None",
        seed=4,
    ),
    Mutant(
        "refuse-what-left-the-window",
        "log/producers.py",
        "_Producer.find_earlier",
        "return StoredBatch(first, last, -1, oldest.base_offset - 1, oldest.timestamp)",
        "return None",
        story="send-batches-again-behind-those-that-the-next-leader-took",
    ),
    Mutant(
        "acknowledge-what-left-the-window-at-once",
        "log/producers.py",
        "_Producer.find_earlier",
        "oldest.base_offset - 1",
        "-1",
        story="send-a-batch-again-that-only-the-leader-has",
    ),
    Mutant(
        "age-producers-by-their-records",
        "log/log.py",
        "Log._append_stored",
        "self.producers.note(header, header.base_offset, now_ms, marker)",
        "self.producers.note(header, header.base_offset, header.max_timestamp, marker)",
        seed=8,
    ),
    Mutant(
        "commit-offsets-on-one-replica",
        "broker/shards/log.py",
        "ShardLog.append",
        "return ErrorCode.NONE if wait is None else wait",
        "return ErrorCode.NONE",
        seed=57,
        stage="lose-two-coordinators",
    ),
    Mutant(
        "load-groups-to-the-high-watermark",
        "broker/shards/loading.py",
        "LoadedShard._read_all",
        "offset, end = (log.log_start_offset, log.log_end_offset)",
        "offset, end = (log.log_start_offset, log.high_watermark)",
        seed=72,
        stage="lose-two-coordinators",
    ),
    Mutant(
        "answer-before-what-was-read-is-everywhere",
        "broker/shards/loading.py",
        "LoadedShard._is_everywhere",
        "return max(in_sync, log.high_watermark) >= self._end_offset",
        "return True",
        story="ask-a-coordinator-whose-follower-lacks-a-generation",
    ),
    Mutant(
        "keep-the-readers-of-a-topic-that-is-gone",
        "broker/groups/shard.py",
        "Shard.topics_gone",
        "if group.members:",
        "if not group.members:",
        story="commit-late-into-a-topic-made-again",
    ),
    Mutant(
        "load-the-readers-of-a-topic-that-is-gone",
        "broker/groups/shard.py",
        "Shard._expel_late",
        "if group.members:",
        "if not group.members:",
        story="commit-late-to-the-coordinator-that-comes-next",
    ),
    Mutant(
        "judge-the-readers-of-a-topic-by-time",
        "broker/groups/shard.py",
        "_is_another",
        "if group.topic_ids is not None:",
        "if False:",
        story="rebalance-at-a-coordinator-that-has-not-heard",
    ),
    Mutant(
        "commit-under-a-stale-generation",
        "group/state.py",
        "Group.member_fault",
        "if generation != self.generation:",
        "if generation > self.generation:",
        seed=121,
        stage="lose-two-coordinators",
    ),
    Mutant(
        "assign-before-it-is-written",
        "broker/groups/shard.py",
        "Shard.carry_out",
        "context.tasks.spawn(self._persist(group, action, appended))",
        "todo += group.persisted(action, ErrorCode.NONE, context.now_ms())",
        seed=127,
        stage="lose-two-coordinators",
    ),
    # -- topics that are deleted and made again, logs that begin late -----------------------------------------------
    Mutant(
        "count-progress-of-another-topic",
        "broker/data/progress.py",
        "FollowerFetches.note",
        "if part.topic_id != partition.topic_id.bytes and (part.topic_id or self._partitions.needs_topic_ids):",
        "if part.fetch_offset < 0:",
        story="remake-beside-a-deaf-follower",
    ),
    Mutant(
        "serve-a-follower-by-name",
        "broker/data/reading.py",
        "Reader.read_partition",
        "self._check_topic_id(request.replica_id, part, partition)",
        "pass",
        story="remake-beside-a-deaf-leader",
    ),
    Mutant(
        "take-the-start-before-the-high-watermark",
        "broker/data/replication.py",
        "Replication._append",
        (
            "self._partitions.follow(partition, result.high_watermark)\n"
            "if result.log_start_offset > log.log_start_offset:\n"
            "    log.delete_records_before(min(result.log_start_offset, log.high_watermark))"
        ),
        (
            "if result.log_start_offset > log.log_start_offset:\n"
            "    log.delete_records_before(min(result.log_start_offset, log.log_end_offset))\n"
            "self._partitions.follow(partition, result.high_watermark)"
        ),
        story="trim-before-the-followers-know",
    ),
    Mutant(
        "count-a-fetch-beyond-the-end",
        "broker/data/progress.py",
        "FollowerFetches.note",
        "if not log.log_start_offset <= part.fetch_offset <= log.log_end_offset:",
        "if part.fetch_offset < 0:",
        story="die-beside-an-empty-log-beyond-the-end",
    ),
    Mutant(
        "keep-a-tail-below-the-leaders-start",
        "replica/divergence.py",
        "is_unproven",
        "return 0 <= last_fetched_epoch < oldest_epoch and followers_start < fetch_offset <= leaders_start",
        "return False",
        story="return-with-a-tail-below-the-leaders-start",
    ),
    Mutant(
        "begin-anew-where-the-leader-ends",
        "broker/data/replication.py",
        "Replication._begin_anew",
        "log.truncate_fully_and_start_at(found.log_start_offset, found.producers)",
        "log.truncate_fully_and_start_at(max(found.log_start_offset, result.high_watermark))",
        story="meet-an-empty-log-beyond-the-end",
    ),
    Mutant(
        "answer-a-deletion-before-the-followers-know",
        "broker/data/partitions.py",
        "Trimmed.result",
        "return _NONE if self.low_watermark() >= self.offset else None",
        "return _NONE",
        story="trim-and-kill-the-leader",
    ),
    Mutant(
        "tell-a-start-that-is-not-written-down",
        "broker/data/replication.py",
        "Replication.question",
        "log.lasting_start_offset",
        "log.log_start_offset",
        story="trim-and-lose-power-everywhere",
    ),
    Mutant(
        "join-the-isr-with-deleted-records",
        "replica/leader.py",
        "Leader._may_join",
        "if follower.log_start_offset < log_start_offset and follower.takes_every_start:",
        "if follower.log_start_offset < 0:",
        story="come-back-to-a-trimmed-log-and-lead",
    ),
    Mutant(
        "delete-without-a-member-that-the-image-lacks",
        "replica/leader.py",
        "Leader.low_watermark",
        "if one in live or one in members)",
        "if one in live)",
        story="trim-beside-a-member-that-the-image-lacks",
    ),
    Mutant(
        "wait-for-our-own-disk-as-long-as-it-takes",
        "broker/data/handlers.py",
        "_wait_deleted",
        "async with asyncio.timeout(timeout_ms / 1000):",
        "if True:",
        story="trim-on-a-disk-that-hangs",
    ),
    # -- wishes ------------------------------------------------------------------------------------------------------
    Mutant(
        "hear-a-wish-on-an-old-connection",
        "broker/data/peers.py",
        "PeerRequests._check_newest",
        "if caller.number < max(self._newest.get(role, 0), oldest_valid):",
        "if caller.number < oldest_valid:",
        story="hear-a-wish-after-its-repetition-was-refused",
    ),
    Mutant(
        "ask-for-a-join-without-zookeeper",
        "broker/data/replication.py",
        "Replication._wanted_changes",
        "if change is None or not (has_session or leading.isr.issuperset(dict(change.isr))):",
        "if change is None:",
        story="come-and-go-without-zookeeper",
    ),
    Mutant(
        "keep-the-office-that-nobody-asks",
        "broker/control/agent.py",
        "ClusterAgent._work",
        "self._check_asked(self._active)",
        "pass",
        story="lose-the-way-to-the-controller",
    ),
    # -- out of touch ------------------------------------------------------------------------------------------------
    Mutant(
        "send-clients-back-while-out-of-touch",
        "broker/data/partitions.py",
        "Partitions.check_in_touch",
        "if not self.is_in_touch(partition):",
        "if partition.leading is None:",
        story="wake-as-a-deposed-leader",
    ),
    Mutant(
        "tell-commits-while-out-of-touch",
        "broker/groups/coordinator.py",
        "GroupCoordinator.offsets",
        "if partition is None or not self._partitions.is_in_touch(partition):",
        "if partition is None:",
        story="wake-as-a-deposed-coordinator",
    ),
    Mutant(
        "forget-the-epoch-of-an-emptied-log",
        "log/recovery.py",
        "load_log",
        "is_empty = segments[-1].next_offset <= start",
        "is_empty = segments[-1].next_offset < 0",
        story="lose-power-after-a-trim",
    ),
    Mutant(
        "keep-offsets-of-a-topic-made-again",
        "broker/groups/coordinator.py",
        "GroupCoordinator.image_applied",
        "gone = {name for name, topic_id in self._known_topics.items() if topics.get(name) != topic_id}",
        "gone = {name for name in self._known_topics if name not in topics}",
        story="remake-beside-a-deaf-coordinator",
    ),
    Mutant(
        "load-offsets-by-name",
        "broker/groups/offsets.py",
        "ShardOffsets._is_orphan",
        "return committed.topic_id is None or committed.topic_id != self._topic_id(key[0])",
        "return self._topic_id(key[0]) is None",
        story="remake-beside-a-coordinator-that-dies",
    ),
    Mutant(
        "make-a-log-while-checkpoints-name-its-predecessor",
        "log/directory.py",
        "LogDirectory._get_or_create",
        "if is_new and str(key) in self._named:",
        "if is_new and not self._named:",
        story="remake-after-a-trim-and-kill-all",
    ),
    # -- what began first ends last -----------------------------------------------------------------------------------
    Mutant(
        "apply-a-commit-before-those-that-wait",
        "broker/groups/offsets.py",
        "ShardOffsets._write",
        "self._apply(number)",
        "self._settle(number, *self._unapplied.pop(number), is_lasting=True)",
        story="commit-while-a-commit-waits",
    ),
    Mutant(
        "know-only-names-that-are-written",
        "log/directory.py",
        "LogDirectory._get_or_create",
        "self._named.add(str(key))",
        "",
        story="remake-while-a-checkpoint-is-written",
    ),
    Mutant(
        "wait-for-the-last-batch-of-a-partition",
        "broker/data/produce.py",
        "ProduceHandler._append",
        "wait if other is None else max(other, wait, key=_last_offset)",
        "wait",
        story="send-a-batch-again-behind-a-new-one",
    ),
    # -- replicas that begin anew ------------------------------------------------------------------------------------
    Mutant(
        "begin-anew-without-producers",
        "broker/data/replication.py",
        "Replication._begin_anew",
        "found.log_start_offset, found.producers",
        "found.log_start_offset",
        story="repeat-a-trimmed-batch-at-a-replica-that-began-anew",
    ),
    Mutant(
        "tell-a-new-replica-no-producers",
        "broker/data/reading.py",
        "Reader.beginning",
        "log.producers.encode(start)",
        "b''",
        story="repeat-a-trimmed-batch-after-a-move",
    ),
    Mutant(
        "answer-a-late-end-for-a-classic-successor",
        "transaction/state.py",
        "Transaction.end_epoch",
        "not before.is_per_epoch or before.state",
        "before.state",
        story="end-late-beside-a-classic-successor",
    ),
    Mutant(
        "take-the-repetition-of-an-end-for-another-one",
        "transaction/state.py",
        "_end_repeated",
        "return ErrorCode.CONCURRENT_TRANSACTIONS if state.is_ending else ErrorCode.NONE",
        "return ErrorCode.CONCURRENT_TRANSACTIONS if state.is_ending else ErrorCode.INVALID_TXN_STATE",
        story="lose-the-answers-of-a-coordinator",
    ),
    Mutant(
        "write-down-no-producers-of-a-log-that-begins-anew",
        "log/producers.py",
        "Producers.begin_at",
        "checkpoint.write_atomically(self.path(offset), data)",
        "",
        story="repeat-a-trimmed-batch-at-a-replica-that-began-anew",
    ),
    Mutant(
        "end-a-segment-without-syncing-its-snapshot",
        "log/log.py",
        "Log._begin_sync",
        "names.insert(0, self.producers.path(until))",
        "",
        story="repeat-a-trimmed-batch-after-a-power-cut",
    ),
    Mutant(
        "delete-batches-that-no-snapshot-knows",
        "log/producers.py",
        "Producers.is_kept_from",
        "return offset <= self.lasting_offset <= max(offset, recovery_point)",
        "return True",
        story="repeat-a-trimmed-batch-after-a-kill-on-a-disk-that-was-full",
    ),
    Mutant(
        "empty-a-log-without-syncing-its-epochs",
        "log/epochs.py",
        "LeaderEpochs.is_synced",
        "return self.is_saved and self._synced_count == self.save_count",
        "return self.is_saved",
        story="lose-power-after-retention-emptied-a-log",
    ),
    Mutant(
        "keep-the-records-of-tombstones-that-are-gone",
        "broker/data/replication.py",
        "_begins_anew",
        "return is_told and (not log.tombstones.is_copy(partition.leader_epoch, result.removing_pass))",
        "return False",
        story="return-after-a-tombstone-is-gone",
    ),
    Mutant(
        "cut-a-compacted-log-where-it-meets-the-leaders",
        "broker/data/replication.py",
        "_begins_anew",
        "return log.was_compacted and offset < log.high_watermark",
        "return False",
        story="return-without-the-records-that-a-compaction-went-by",
    ),
    Mutant(
        "forget-that-tombstones-were-removed",
        "log/compaction.py",
        "CompactionJob._is_kept",
        "self._removed_tombstone = max(self._removed_tombstone, record.offset)",
        "",
        story="return-after-a-groups-tombstones-are-gone",
    ),
    Mutant(
        "believe-the-wall-clock-at-the-start",
        "broker/retention_clock.py",
        "RetentionClock.__init__",
        "self._wall_ms() if noted_ms is None else noted_ms",
        "self._wall_ms()",
        story="come-up-with-the-clock-ahead",
    ),
    Mutant(
        "compact-by-the-wall-clock",
        "broker/maintenance.py",
        "Maintenance._compact",
        "now_ms = self._clock.now_ms()",
        "now_ms = self._now_ms()",
        story="compact-with-the-clock-set-ahead",
    ),
    # -- logs that are cut, emptied and compacted ----------------------------------------------------------------------
    Mutant(
        "end-an-emptied-segment-where-it-begins",
        "log/recovery.py",
        "_trust",
        "segment.skip_to(following.base_offset)",
        "",
        seed=3,
    ),
    Mutant(
        "expire-above-the-high-watermark",
        "log/retention.py",
        "expired_segments",
        "segment.end_offset > high_watermark or ",
        "",
        seed=10,
    ),
    Mutant(
        "lead-groups-that-cannot-be-read",
        "broker/shards/loading.py",
        "LoadedShard.load",
        "if isinstance(error, OSError):",
        "if error is None:",
        story="lead-groups-that-cannot-be-read",
    ),
    Mutant(
        "never-open-a-log-that-found-no-descriptor",
        "broker/data/partitions.py",
        "Partitions.has_waiting",
        "return any((one is not None and one.log is None for one in hosted))",
        "return False",
        story="create-where-nothing-opens",
    ),
    Mutant(
        "keep-fewer-bytes-than-retention-says",
        "log/retention.py",
        "_reason",
        "excess_bytes >= segment.size_bytes",
        "excess_bytes > 0",
        seed=2,
    ),
    Mutant(
        "keep-records-for-half-of-the-time",
        "log/retention.py",
        "_reason",
        "now_ms - newest_ms(segment, now_ms) > config.retention_ms",
        "now_ms - newest_ms(segment, now_ms) > config.retention_ms // 2",
        seed=3,
    ),
    Mutant(
        "begin-late-before-the-first-batch-is-written",
        "log/log.py",
        "Log._begins_inside",
        "self.truncate_fully_and_start_at(header.base_offset, self.producers.encode(header.base_offset))",
        "start = self.log_start_offset\n"
        "self.truncate_fully_and_start_at(header.base_offset, self.producers.encode(header.base_offset))\n"
        "self.log_start_offset = start",
        seed=63,
    ),
    Mutant(
        "begin-a-copied-epoch-behind-the-gap",
        "log/log.py",
        "Log._append_stored",
        "self._begin_epoch(header.partition_leader_epoch, end_offset)",
        "self._begin_epoch(header.partition_leader_epoch, header.base_offset)",
        story="return-with-a-tail-where-the-copy-has-a-gap",
    ),
    Mutant(
        "number-the-records-of-a-repacked-batch-anew",
        "log/compaction.py",
        "_rebuilt",
        "attributes = header.attributes & ~(DELETE_HORIZON | COMPRESSION_MASK)",
        "attributes = header.attributes & ~(DELETE_HORIZON | COMPRESSION_MASK)\n"
        "for number, record in enumerate(kept):\n"
        "    record.offset = header.base_offset + number",
        seed=9,
    ),
    Mutant(
        "compact-the-last-record-of-a-key-away",
        "log/compaction.py",
        "CompactionJob._is_kept",
        "record.offset < last_offset",
        "record.offset <= last_offset",
        seed=2,
    ),
    Mutant(
        "end-a-transaction-without-markers",
        "transaction/state.py",
        "Transaction.resume",
        "self.unmarked = metadata.partitions",
        "self.unmarked = frozenset()",
        story="commit-while-coordinators-die",
    ),
    Mutant(
        "commit-the-offsets-of-an-aborted-transaction",
        "broker/transactions/ends.py",
        "TransactionEnds._append",
        "is_commit=wish.is_commit, wait=wait",
        "is_commit=True, wait=wait",
        story="commit-while-coordinators-die",
    ),
    Mutant(
        "take-an-aborted-transaction-for-a-committed-one",
        "broker/transactions/ends.py",
        "TransactionEnds._append",
        "marker = Marker(wish.is_commit, wish.coordinator_epoch, wish.decided_ms)",
        "marker = Marker(True, wish.coordinator_epoch, wish.decided_ms)",
        story="commit-while-coordinators-die",
    ),
)


class _Loader(SourceFileLoader):
    """Loads one module with the fault in it, and never from a cache."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(PACKAGE / mutant.file))
        self._tree = mutant.applied()

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._tree, self.path, "exec", dont_inherit=True)


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


def install(mutant: Mutant) -> None:
    """Let imports from now on find the fault in its module."""
    assert mutant.module not in sys.modules, f"{mutant.module} is imported already"
    sys.meta_path.insert(0, _Finder(mutant))
