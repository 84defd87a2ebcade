"""What to do when an alert fires: look, decide, act, verify.

One source for `pylog explain ALERT`, the console and docs/alerts.md.  The rules are in
`roles/monitoring/files/alerts.yml`; a test holds both to the same alerts.  Words in capitals stand for values:
labels of the alert, or what the reader has to fill in.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """The way through one alert.

    Attributes:
        what: what is wrong, as the alert says it.
        look: what to read first, and where.
        decide: what tells one cause from another.
        act: what to do for each of them.
        verify: how to see that it is over.
    """

    what: str
    look: str
    decide: str
    act: str
    verify: str


_GONE = "The alert ends within two scrapes."


def _lost(name: str, program: str) -> str:
    """Return what to say where the program may be well, and only its file of metrics is not there."""
    return (
        f" Is {program} well, then only the alert does not know: the file `/var/lib/pylog/metrics/{name}.prom` (unless"
        " the inventory names another) was removed, belongs to another user, or the node exporter does not read it"
        " (`node_textfile_scrape_error` is 1, or `systemctl cat pylog-node-exporter` names another directory)."
    )


_FOUND = " Remove a file of another user; the next run writes one."


def _down(what: str, unit: str, harm: str, act: str, verify: str = _GONE) -> Runbook:
    return Runbook(
        what=f"{what} on HOST does not answer",
        look=f"`fab status`; `fab logs --host HOST --unit '{unit}'`. If the host itself is silent: its console. Why "
        "Prometheus gets no answer is on its page of targets: `ssh -L 9090:127.0.0.1:9090 MONITOR`, where MONITOR is a "
        "host "
        "of `pylog_monitoring`, then `http://127.0.0.1:9090/targets`.",
        decide=f"{harm} A unit that is `failed` or restarts again and again has its reason in the last lines of "
        f"the journal; "
        "one that runs is cut off: firewall, address, or a port that another program holds; or its certificate, or "
        "Prometheus's own, has expired (the page of targets says so), and clients may be well.",
        act=act,
        verify=f"`fab status` has no row that is unwell. {verify}",
    )


RUNBOOKS: Mapping[str, Runbook] = {
    "PylogHostDown": _down(
        "the node exporter", "pylog-node-exporter",
        "Are other units of the host well, then only its measurements are missing; with all of them silent the "
        "host is down.",
        "Only the exporter: `systemctl restart pylog-node-exporter` on the host. The host is gone for good: put "
        "a bare one under "
        "the same name and ids, then `ansible-playbook -i inventories/NAME playbooks/replace_broker.yml -e "
        "replace_host=HOST`.",
    ),
    "PylogBrokerDown": _down(
        "broker BROKER", "pylog-broker@BROKER",
        "Others lead meanwhile and nothing that was acknowledged is lost. `pylog_partitions_at_min_isr` counts the "
        "partitions that refuse acks=all once a second broker is away. "
        "A broker that says `recovering` reads its log: wait. `inactive (dead)`: somebody stopped it; `fab logs` shows "
        "when, and who rolls or repairs should know why.",
        "Restart no other broker meanwhile. systemd starts a process that ended. Stopped, and neither a roll nor a "
        "repair is under way: `systemctl start pylog-broker@BROKER` on the host. Unit `failed`: `pylog config check "
        "/etc/pylog/broker-ID.yml`, mend what it names, then on the host `systemctl reset-failed pylog-broker@ID` and "
        "`systemctl start pylog-broker@ID`. Killed for want of memory (`journalctl -k -g oom`): find what took it. A "
        "release that cannot run: check the previous one out and `ansible-playbook -i inventories/NAME "
        "playbooks/rolling_upgrade.yml`. A host that is lost: `ansible-playbook -i inventories/NAME "
        "playbooks/replace_broker.yml -e replace_host=HOST`. A disk: `playbooks/replace_disk.yml`.",
        "The alert ends before the replicas are in sync again: `pylog cluster health --broker ID --leading --elect "
        "--wait 600` waits for that, and gives the broker back what it led.",
    ),
    "PylogLoadBalancerDown": _down(
        "the load balancer", "pylog-load-balancer",
        "Clients that run go on, since they talk to brokers directly; new ones start from another balancer or "
        "not at all.",
        "`systemctl restart pylog-load-balancer` on the host; meanwhile give new clients the brokers' own addresses.",
    ),
    "PylogMirrorDown": _down(
        "the mirror", "pylog-mirror",
        "Another instance of the group takes its partitions over; without one the other datacenter falls behind "
        "and loses "
        "nothing while the source keeps its records.",
        "`systemctl restart pylog-mirror` on the host. If it ends again, its last line names what it cannot do.",
    ),
    "PylogRegistryDown": _down(
        "the registry", "pylog-registry",
        "Programs that know their schemas go on; new ones and new schemas wait. Another instance answers where "
        "there is one. A registry that starts answers only once it has read its topic: where its journal says "
        "`waits_for_brokers`, or `pylog topic describe _schemas` shows no leader, the brokers are the cause "
        "(PylogBrokerDown, PylogPartitionsLeaderless).",
        "Brokers first: the registry then goes on by itself. `systemctl restart pylog-registry` on the host only when "
        "`pylog cluster health` is well: one that runs answers from memory, and after a restart is silent until it can "
        "read its topic.",
    ),
    "PylogAuditDown": _down(
        "the audit's reader", "pylog-audit",
        "No record is at risk; windows stay unjudged until it has caught up.",
        "`systemctl restart pylog-audit` on the host. It goes on where it stopped.",
    ),
    "PylogControllerMissing": Runbook(
        what="DATACENTER should have one controller; brokers that claim to be it: VALUE",
        look="The alert names the brokers that claim to be it. `pylog cluster health`; `pylog zk show /controller "
        "--config /etc/pylog/broker-ID.yml`; `fab status` "
        "for the ensemble; `pylog_store_connected` of each broker.",
        decide="None, and ZooKeeper without a majority: brokers serve and refuse changes. None, ZooKeeper is well, and "
        "`/controller` names a broker: it is elected and cannot finish its start. None, and `/controller` is not "
        "there: "
        "no broker reaches ZooKeeper. Two for longer than a session: `/controller` names the right one, and the other "
        "is "
        "cut off from ZooKeeper.",
        act="No majority: as for PylogZooKeeperQuorumLost, and restart no broker. One that cannot finish: its journal "
        "says why; `systemctl restart pylog-broker@ID` there, and another is elected. No broker reaches ZooKeeper: as "
        "for "
        "PylogZooKeeperUnreached. Two: `systemctl restart pylog-broker@ID` of the one that `/controller` does not "
        "name.",
        verify="`pylog cluster health --wait 600` ends with `healthy`.",
    ),
    "PylogPartitionsOffline": Runbook(
        what="broker BROKER cannot use the log of some partitions: VALUE",
        look="`pylog cluster health`; `fab logs --host HOST --unit pylog-broker@BROKER` names partition and "
        "cause; `dmesg` for the disk.",
        decide="A disk that fails, is full or has gone read-only, or files that somebody changed. Are the "
        "partitions in sync on "
        "other brokers? Then nothing is lost.",
        act="Full: as for PylogDiskFull. Read-only or failing: `playbooks/replace_disk.yml`. Not in sync "
        "elsewhere: bring the old disk "
        "back before anything else.",
        verify="`pylog cluster health --wait 600`; `pylog log verify DIR` on the broker's directory. If the broker "
        "leads "
        "nothing then: `pylog partition elect`.",
    ),
    "PylogPartitionsUnderReplicated": Runbook(
        what="partitions led by broker BROKER lack a replica in sync: VALUE",
        look="The alert names brokers that do not answer, followers that lack records, and throttles. With "
        "PylogBrokerDown: go there first. `pylog_follower_lag_seconds` since when each follower is behind. "
        "`pylog cluster health` names the partitions and the broker that is missing; `pylog top` shows which topics "
        "are "
        "written "
        "to most. HOST and BROKER are of the leader; read the journal of the broker that is missing, OTHER "
        "on OTHERHOST: `fab logs --host OTHERHOST --unit pylog-broker@OTHER`.",
        decide="Is that broker down (then PylogBrokerDown comes too), recovering its log, on the move (`pylog "
        "partition reassign --status`), "
        "is its log offline or its disk full (PylogPartitionsOffline, PylogDiskFull), can it not sync a partition "
        "(`sync "
        "put off` in its journal, with the reason), or is it alive and too slow: disk, network? "
        "`pylog_replication_throttled_partitions` above 0 while nothing is on the move: a throttle was left behind. "
        "Compare `pylog_replication_throttle_bytes_per_second` with `sum by (broker) "
        "(rate(pylog_produce_bytes_total[5m]))`: if the throttle is lower, a follower never catches up.",
        act="Down: as for PylogBrokerDown. Recovering or moving: wait. A throttle that was left: `pylog partition "
        "reassign --status` shows no move, then `pylog partition reassign --status --unthrottle`. Too slow: end what "
        "loads the host, or bound the producers by a quota (PylogClientsThrottled has the command). `sync put off`: as "
        "its "
        "reason says; the broker tries again by itself.",
        verify="`pylog_partitions_under_replicated` is 0; `pylog cluster health --wait 600`. A broker that was away "
        "leads "
        "nothing at first: `pylog partition elect`.",
    ),
    "PylogDiskFilling": Runbook(
        what="the data disk of broker BROKER is filled above log.disk.alarm.percent",
        look="The alert has the share in use, the bytes in use, those of logs, and those that are free: what is in use "
        "and no log is not pylog's. To tell by growth: `delta(pylog_disk_used_bytes[1h])` beside "
        "`sum by (broker) (delta(pylog_topic_log_bytes[1h]))`. On the host: `df -h`; `du -sh DIR/*` in the broker's "
        "data directory for the largest topics.",
        decide="Not pylog's: as for PylogDiskFull. Does one topic grow faster than planned, or all? How many hours are "
        "left, by the dashboard's \"When is the disk full?\"?",
        act="Not pylog's: move it to another disk, and delete no record. Logs: shorten the largest topic's retention, "
        "`pylog topic alter TOPIC --set retention.ms=86400000`; or more disk space: `playbooks/expand.yml` with new "
        "hosts.",
        verify="`pylog retention --all` on the host deletes at once what cron would within the hour; then `df -h`. A "
        "retention that was shortened for the time being is set back by `pylog topic alter TOPIC --delete "
        "retention.ms`.",
    ),
    "PylogDiskFull": Runbook(
        what="broker BROKER refuses writes: its data disk is above log.disk.high.watermark.percent",
        look="The alert has the share in use, the bytes in use, those of logs, and those that are free. To tell by "
        "growth: `delta(pylog_disk_used_bytes[1h])` beside "
        "`sum by (broker) (delta(pylog_topic_log_bytes[1h]))`. On the host, with `data_dir` "
        "of `/etc/pylog/broker-ID.yml` as DIR: `findmnt -T DIR` names the file system; `du -xah MOUNT | sort -h | "
        "tail`; `lsof +L1` shows deleted files that a process still holds.",
        decide="Are most of the bytes those of topics? If not, something that is not pylog's lies on the disk: find "
        "it, and no record is lost. If they are: which topic may lose its oldest records? What is deleted is gone for "
        "its consumers: `pylog group list` shows who lags. Followers on the broker still write, so the disk can "
        "fill up to the last byte; the broker then leaves the in-sync replicas.",
        act="Not pylog's: move the file to another disk, and delete no record. If it is not found soon, and `pylog "
        "cluster impact --broker ID` shows that others can lead: `systemctl stop pylog-broker@ID`. Logs: `pylog topic "
        "alter TOPIC --set retention.ms=3600000`, then on the host `pylog retention --all`. Do not delete segment "
        "files by "
        "hand.",
        verify="Producers go on by themselves; `df -h`; `pylog cluster health`. If you shortened a retention, set it "
        "back: `pylog topic alter TOPIC --delete retention.ms`.",
    ),
    "PylogProduceRefused": Runbook(
        what="broker BROKER refuses records again and again",
        look='`rate(pylog_errors_total{api="produce"}[5m])` by error; clients\' own errors; `fab logs --host HOST '
        "--unit pylog-broker@BROKER`, lines with `refused`.",
        decide="Too few in sync (then PylogPartitionsUnderReplicated), a full disk (PylogDiskFull), records "
        "larger than `max.message.bytes`, or "
        "batches that are damaged by what sends them.",
        act="Full disk: as for PylogDiskFull. Larger records on purpose: `pylog topic alter TOPIC --set "
        "max.message.bytes=2000000`. Damaged "
        "batches: that client's version or network.",
        verify="The rate of refusals falls to 0 on the broker's dashboard.",
    ),
    "PylogSegmentDamaged": Runbook(
        what="broker BROKER found damage in a closed segment",
        look="`fab logs --host HOST --unit pylog-broker@BROKER` names the file; `dmesg`; `smartctl -a DEVICE`.",
        decide="Disk errors: the disk is to be replaced. None: memory or a program that wrote there. Are the "
        "partition's other replicas in sync?",
        act="`ansible-playbook -i inventories/NAME playbooks/replace_disk.yml -e replace_host=HOST -e "
        "replace_mount=MOUNT`; the others fill it again.",
        verify="`pylog log verify DIR`; `pylog cluster health --wait 600`. A broker that came back leads nothing at "
        "first: `pylog partition elect`.",
    ),
    "PylogCompactionFails": Runbook(
        what="broker BROKER cannot compact some of its logs, which grow from now on: VALUE",
        look="`fab logs --host HOST --unit 'pylog-broker@*'` for `compaction failed`: partition and reason; "
        "`pylog_compaction_failed_logs` of the other brokers.",
        decide="No space left, or the disk fails: it is the disk, and every log of it is tried again. Damaged records "
        "in one replica alone: its disk or memory changed them. In all replicas alike: they were written so.",
        act="The disk: as for PylogDiskFull or PylogSegmentDamaged. One replica: `pylog log verify DIR` on the host "
        "shows the place; move the replica to another broker by `pylog partition reassign`, and back: it is copied "
        "from the leader. If that is the leader's own, name another replica first there, and let it lead by "
        "`pylog partition elect`. All replicas: nothing is lost, but the log grows; copy the topic to a new "
        "one, and report it.",
        verify="`pylog_compaction_failed_logs` is 0.",
    ),
    "PylogStrayDirectories": Runbook(
        what="broker BROKER set directories aside that the cluster does not know: VALUE",
        look="`ls` in the broker's data directory: names that end in `-stray`.",
        decide="Was the topic deleted while the broker was away? Then it is rubbish. Was metadata restored or "
        "ZooKeeper emptied? Then it may be "
        "the only copy: keep it.",
        act="Rubbish: `pylog log purge-stray --yes DIR` on the host. Else move it to another disk before "
        "anything else.",
        verify=_GONE,
    ),
    "PylogUpkeepFails": Runbook(
        what="upkeep of broker BROKER was ended by a bug: retention, checkpoints, compaction or the look at the disk",
        look="`fab logs --host HOST --unit 'pylog-broker@*'` for `duty failed`: which duty it was, and the traceback.",
        decide="Each duty is tried again at its next turn. Failed once: no harm was done. Again and again: the disk "
        "fills, "
        "or its fill is not known any more.",
        act="Watch the disk by `df -h` meanwhile; `pylog retention --all` on the host deletes what has expired. A "
        "restart "
        "of the broker often helps: `playbooks/rolling_restart.yml` with `--limit HOST`. Report the traceback.",
        verify="`pylog_duties_failed_total` stands still.",
    ),
    "PylogIsrChurns": Runbook(
        what="replicas of DATACENTER leave and join the in-sync sets all the time: VALUE changes a second",
        look="The alert names the leaders that ask for most changes. `pylog cluster health` some times in a row: which "
        "broker falls out each time? The hosts' dashboards: disk and network; `histogram_quantile(0.99, sum by "
        "(broker, "
        "le) (rate(pylog_loop_delay_seconds_bucket[5m])))` for pauses.",
        decide="One broker falls out of the sets of many leaders: its disk or host is too slow. Many fall out of the "
        "sets "
        "of one leader: that one is. Many out of the sets of many: the network, or more is written than they can copy.",
        act="End what else loads that host, or replace its disk (`playbooks/replace_disk.yml`). A host that stays too "
        "slow: `pylog partition reassign --drain ID` shows how its replicas would move, `--execute` moves them, which "
        "copies their logs; `--throttle` bounds that. Bound producers by a quota (PylogClientsThrottled has the "
        "command). A `replica.lag.time.max.ms` of 30 s is the default; a shorter one was somebody's choice.",
        verify="`sum(rate(pylog_isr_changes_total[10m]))` is 0.",
    ),
    "PylogClientsThrottled": Runbook(
        what="broker BROKER holds clients back that use more than their quota",
        look="`pylog_quota_throttled_total` says which quota it is; `kafka-configs.sh --bootstrap-server HOST:PORT "
        "--describe --entity-type clients` (and `users`) what it is. The tool is in `bin` of every download of Apache "
        "Kafka; a secured cluster also wants `--command-config FILE` with a login.",
        decide="A program that went wild, or one that grew and was promised more?",
        act="Wild: its owner stops it; the quota does its work meanwhile. Grown: raise the quota: "
        "`kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type clients --entity-name CLIENT "
        "--add-config "
        "producer_byte_rate=10485760`, in bytes a second for each broker; `consumer_byte_rate` bounds reading, "
        "`--entity-type users` a user, and `--delete-config producer_byte_rate` lifts it.",
        verify=_GONE,
    ),
    "PylogWritesRefused": Runbook(
        what="broker BROKER refuses acks=all for partitions below min.insync.replicas: VALUE",
        look="`pylog cluster health`; `pylog topic describe TOPIC` shows the in-sync replicas of each partition.",
        decide="Are brokers away (PylogBrokerDown), or do they run and fall behind (PylogIsrChurns, a slow disk, a "
        "full one)? min.insync.replicas may also ask for more than the topic has replicas in reach.",
        act="Bring the brokers back. Where a host is gone for good: `playbooks/replace_broker.yml`. Nothing that "
        "was acknowledged is lost meanwhile; producers wait and try again.",
        verify="`pylog cluster health` ends with 0. The alert ends within two scrapes. A broker that was away leads "
        "nothing at first: `pylog partition elect`.",
    ),
    "PylogNoMargin": Runbook(
        what="broker BROKER leads partitions of which no further replica may fall out: VALUE",
        look="The alert names brokers that do not answer, and throttles; `pylog cluster health` the partitions, and "
        "the "
        "brokers that are away or behind.",
        decide="A restart in progress is over in minutes. Otherwise a broker is down, its disk is too slow to keep up, "
        "or a throttle holds it back: `pylog_replication_throttled_partitions`, see PylogPartitionsUnderReplicated.",
        act="Bring the broker back if it is down; once it is in sync, `pylog partition elect` gives it back what it "
        "led. "
        "Postpone rolls and reassignments: the next replica that falls out stops acks=all.",
        verify="`pylog_partitions_at_min_isr` is 0; `pylog cluster health` shows every replica in sync.",
    ),
    "PylogPartitionsLeaderless": Runbook(
        what="partitions of DATACENTER have no leader: VALUE",
        look="`pylog cluster health` names the partitions; `pylog topic describe TOPIC` their replicas.",
        decide="All in-sync replicas are away. One of them is to come back: whoever else led would lose acknowledged"
        " records.",
        act="Start the brokers of the in-sync replicas. Only if their disks are gone for good: `pylog partition "
        "elect --unclean` for these partitions, which loses what the other replicas do not have.",
        verify="`pylog cluster health` ends with 0.",
    ),
    "PylogProduceSlow": Runbook(
        what="more than one write in a hundred takes over a second at broker BROKER; within a second: VALUE",
        look="The broker's dashboard, row \"How slow is it, and where?\", or `histogram_quantile(0.99, sum by (part, "
        "le) "
        "(rate(pylog_request_seconds_bucket{api=\"produce\",broker=\"BROKER\"}[5m])))`: part `replicas` beside "
        "`total`; "
        "`histogram_quantile(0.99, sum by (le) (rate(pylog_loop_delay_seconds_bucket{broker=\"BROKER\"}[5m])))`, the "
        "delay of the event loop.",
        decide="Most of it is `replicas`: a follower is slow, see which falls out of sync. The event loop is late: "
        "PylogLoopDelayed. Neither: its own disk is slow, see the host's I/O.",
        act="A slow disk: `playbooks/replace_disk.yml`. Too much load: `pylog partition reassign --topic TOPIC "
        "--to 1,2,3` with brokers that have room shows a plan, and `--execute` moves its replicas with their records; "
        "or "
        "bound "
        "the client that sends it by a quota (PylogClientsThrottled has the command).",
        verify="The p99 of part `total` is below a second again.",
    ),
    "PylogLoopDelayed": Runbook(
        what="the event loop of broker BROKER runs half a second late or more: VALUE s",
        look="`rate(process_cpu_seconds_total{job=\"pylog-broker\",broker=\"BROKER\"}[5m])`, the cores that the broker "
        "uses; `sum by (host) (rate(node_cpu_seconds_total{mode!=\"idle\"}[5m]))`, those that are used of its host; "
        "`sum "
        "by (api) (rate(pylog_requests_total{broker=\"BROKER\"}[5m]))`.",
        decide="Near one whole core: the broker has more to do than one event loop can. Far below: other programs of"
        " the host take the CPU, or the machine was paused.",
        act="Let others lead: `pylog partition reassign --topic TOPIC --to 1,2,3` with brokers that have room shows a "
        "plan, "
        "and `--execute` moves the replicas with their records; add a broker (`playbooks/expand.yml`), or set a "
        "quota for the client that asks most (PylogClientsThrottled has the command).",
        verify="`histogram_quantile(0.99, sum by (broker, le) (rate(pylog_loop_delay_seconds_bucket[5m])))` is below "
        "0.1.",
    ),
    "PylogSyncSlow": Runbook(
        what="broker BROKER takes over a second to sync a log that clients wait for: VALUE s",
        look="On the host: `iostat -x 5`, `dmesg | tail`; the dashboard of hosts: which disks are busy?",
        decide="All syncs are slow: the disk fails, or another program keeps it busy. Only some: many topics with "
        "`flush.messages` share it.",
        act="Move what else writes there. A disk that fails: `playbooks/replace_disk.yml`. Replicas on other hosts "
        "keep acknowledged records without a sync: is `flush.messages` needed on that topic?",
        verify="`histogram_quantile(0.99, rate(pylog_sync_seconds_bucket[5m]))` is some milliseconds.",
    ),
    "PylogBrokerRestarts": Runbook(
        what="broker BROKER was started more than twice within an hour: VALUE times",
        look="`fab logs --host HOST --unit 'pylog-broker@*'`: the last lines before each start.",
        decide="A code PYLOG-nnn in the journal: `pylog explain` it. Killed without a word: memory (`journalctl "
        "-k`). Stopped by a roll: nothing is wrong.",
        act="As the code says. Memory: fewer partitions or connections on this host, or more memory.",
        verify="No further start for an hour.",
    ),
    "PylogDescriptorsShort": Runbook(
        what="broker BROKER has used 85 % of the file descriptors it may open",
        look="`pylog_connections` by listener, `pylog_client_connections` by software, `pylog_partitions`.",
        decide="Connections grow: a client opens them and does not close them. Partitions grow: each log in use "
        "needs a few.",
        act="Set `max.connections`, mend the client, or move partitions to other brokers.",
        verify="The share on the dashboard falls below 85 %.",
    ),
    "PylogDiskFullSoon": Runbook(
        what="the data disk of broker BROKER will be full within a day",
        look="The alert has the share in use, the bytes in use, those of logs, and those that are free: what is in use "
        "and no log is not pylog's. To tell by growth: `delta(pylog_disk_used_bytes[1h])` beside "
        "`sum by (broker) (delta(pylog_topic_log_bytes[1h]))`. On HOST: `df -h`; `du -sh DIR/*` in the broker's data "
        "directory for the largest topics. `pylog partition "
        "reassign "
        "--status`; `pylog cluster health`.",
        decide="The alert draws a straight line through the last six hours. Is the broker being filled: is a move to "
        "it "
        "under way, or did it come back empty (`replace_broker`, `replace_disk`) and copies what it lacks? Then the "
        "line "
        "ends with the copy. Not pylog's files: as for PylogDiskFilling. Logs that should shrink: compaction or "
        "retention "
        "does not run (PylogCompactionFails, PylogRetentionLate). None of these: more is written than was planned.",
        act="Being filled: wait, and delete no record; if what is still to come has no room, `pylog partition reassign "
        "--cancel` ends a move. More is written: add a broker (`playbooks/expand.yml`) and move partitions, slow the "
        "producer down by a quota (PylogClientsThrottled has the command), or shorten `retention.ms` or "
        "`retention.bytes` of the topic, which deletes its oldest records for good.",
        verify="The dashboard's time left grows, or is gone; `df -h` stands still. Set a retention that was shortened "
        "for "
        "the time being back: `pylog topic alter TOPIC --delete retention.ms`, or `--set` to what it was.",
    ),
    "PylogCertificateExpires": Runbook(
        what="the certificate of listener LISTENER of broker BROKER expires soon, or has",
        look="On the dashboard: when does it expire? `openssl x509 -enddate -noout -in FILE` on the host.",
        decide="Once it has expired, clients refuse new connections; those that are open go on.",
        act="Run `playbooks/site.yml`, which renews certificates of the bundle's authority. Where yours come from "
        "elsewhere, have "
        "them renewed and replace the files that the inventory names before. The broker reads the new files within a "
        "minute, without a restart.",
        verify="`pylog_certificate_expires_timestamp_seconds` is the new date. The broker's journal: `certificate "
        "reloaded`.",
    ),
    "PylogHostCertificateExpires": Runbook(
        what="the certificate in FILE of HOST expires soon, or has",
        look="`openssl x509 -enddate -subject -noout -in FILE` on the host. The name says whose it is: "
        "ZooKeeper's below `/etc/pylog-zookeeper`, the load balancer's below `/etc/pylog-load-balancer`, those of "
        "Prometheus and the node exporter below `/etc/pylog-monitoring`, the others by name below `/etc/pylog`.",
        decide="Once it has expired, others refuse that program, and a metrics page is no longer scraped. Brokers get "
        "no new session with such a ZooKeeper server.",
        act="Run `playbooks/site.yml`, which renews certificates of the bundle's authority "
        "`certificates_renew_days` before their end. Where it renews none, the authority itself ends: bring another "
        "one (docs/handbook.md). Certificates of your own: put new ones into `certificates_given` before.",
        verify="`pylog_host_certificate_expires_timestamp_seconds` is the new date; `site` writes it, so a file that "
        "was replaced by hand shows there after the next run.",
    ),
    "PylogRevocationListExpires": Runbook(
        what="the revocation list of listener LISTENER of broker BROKER expires within a day, or has",
        look="`openssl crl -nextupdate -noout -in FILE` on the host, with the file of `ssl.crl.location` in the "
        "broker's "
        "configuration.",
        decide="Once it has expired, nobody with a certificate gets in, programs of the bundle included; connections "
        "that "
        "are open go on.",
        act="Fetch the newest list from your authority, put it where the inventory names it, and run "
        "`playbooks/site.yml`. "
        "The broker reads the new file within a minute, without a restart.",
        verify="`pylog_revocation_list_expires_timestamp_seconds` is the new date.",
    ),
    "PylogLoginsFail": Runbook(
        what="logins by MECHANISM fail again and again at broker BROKER",
        look="`fab logs --host HOST --unit 'pylog-broker@*'`, the lines `login failed`: listener, peer, mechanism "
        "and reason.",
        decide="One peer and one user: a program with an old password. Many users from one peer: somebody guesses. "
        "All of them since a change: the credentials were not brought to the cluster, or a token's issuer is not "
        "known.",
        act="An old password: its owner sets the new one. Guessing: block the address. Each failure is answered "
        "late, so a guess costs a second. `pylog user list --config /etc/pylog/broker-ID.yml` shows who may log in.",
        verify='`rate(pylog_logins_total{result="failed"}[5m])` is 0.',
    ),
    "PylogProbeDown": Runbook(
        what="the probe on HOST does not answer",
        look="On the host: `systemctl status pylog-probe`; `journalctl -u pylog-probe -n 50`.",
        decide="Canary, group lag and ZooKeeper are not measured meanwhile; brokers and clients do not feel it.",
        act="systemd starts a process that ended. A configuration that is wrong: `pylog probe --check --config "
        "FILE`.",
        verify="`up{job=\"pylog-probe\"}` is 1.",
    ),
    "PylogCanaryFails": Runbook(
        what="clients of broker BROKER cannot STAGE",
        look="`pylog cluster health`; which other alerts fire?",
        decide="`produce` fails: the leader refuses or does not answer. Only `consume` fails: records are written "
        "and not shown, so the high watermark stands still. Brokers well and all canaries fail: the way "
        "between the probe and them is cut.",
        act="As the alert of the cause says: PylogBrokerDown, PylogPartitionsLeaderless, "
        "PylogDiskFull.",
        verify="The canary's p99 is back on its dashboard.",
    ),
    "PylogGroupStopped": Runbook(
        what="group GROUP reads TOPIC no longer",
        look="The alert names partition and offset, and the member that reads there, if one does. `pylog group "
        "describe GROUP`: members, offsets, when it last committed.",
        decide="No members: its program is down. Members that do not commit: it hangs, or its commits are refused; "
        "its own log says which.",
        act="The program's owner starts or restarts it. A group that is not wanted any more: `pylog group delete "
        "GROUP`.",
        verify="`pylog group describe GROUP` shows OK and the lag becomes smaller.",
    ),
    "PylogGroupStalled": Runbook(
        what="group GROUP commits the same offset of TOPIC again and again",
        look="The alert names the partition that stalls, its offset, its member and that member's address; `pylog "
        "group describe GROUP --format wide` shows all partitions. `pylog consume TOPIC --partition N --from OFFSET -n "
        "1`: the record that is next. The alert also says how often the group rebalanced, and how fast the topic is "
        "fetched: `increase(pylog_group_rebalances_total[15m])`, and `sum(rate(pylog_topic_fetch_bytes_total[15m])) by "
        "(topic)` divided by `sum(rate(pylog_topic_produce_bytes_total[15m])) by (topic)`.",
        decide="Usually one record that its program cannot process. The group rebalances: the program crashes at that "
        "record and is started again. It does not, and the topic is fetched more slowly than it is written: the "
        "program waits at the record, or runs on without that partition. It does not, and the topic is fetched as fast "
        "as it is written or faster: the program reads on and commits an old offset, unless others read TOPIC too "
        "(`pylog group list`, `pylog group describe`): their fetches count as well. Stop the members for a minute: the "
        "rate falls by what they fetch. The program's own log confirms it.",
        act="Its owner mends the program. It commits an old offset: skip nothing. To skip the record instead, keep "
        "what `pylog consume` showed, since nobody "
        "will process it; stop the members; `pylog group reset-offsets GROUP --topic TOPIC:PARTITION --to NEXT`, "
        "where NEXT is OFFSET + 1, shows what would change, and `--execute` does it; start the members.",
        verify="`pylog group describe GROUP` shows another offset at once, and OK after ten minutes at most.",
    ),
    "PylogCanarySilent": Runbook(
        what="the probe on HOST got no record through any broker for minutes",
        look="`pylog cluster health`; on the host: `journalctl -u pylog-probe -n 50`, for `canary_topic_unknown` and "
        "its reason.",
        decide="No broker answers anybody: an outage. They answer you: the way from the probe is cut, or the probe may "
        "not make or read its topic (`probe_canary_topic`).",
        act="Outage: PylogBrokerDown, PylogControllerMissing and PylogPartitionsLeaderless say which. Refused: grant "
        "the rights to the probe's user; `playbooks/site.yml` does for the bundle's own.",
        verify="`pylog_canary_last_success_timestamp_seconds` grows again.",
    ),
    "PylogGroupSlow": Runbook(
        what="group GROUP reads TOPIC more slowly than it is written, for an hour",
        look="`pylog group describe GROUP --format wide`: which partitions lag, and which members read them; "
        "`pylog_group_lag_seconds`, since when it grows; `rate(pylog_topic_produce_bytes_total[5m])` of the topic.",
        decide="All partitions lag: the program is too slow for what is written, or more is written than before. "
        "Those of one member: its host or program. One partition: one key has most of the records. Does retention "
        "delete before the group reads (`retention.ms` beside the lag)? Then records are lost for it.",
        act="Start more members, up to one for each partition; more partitions help where keys are many. Its owner "
        "makes the program faster: larger fetches, work in batches. Until then lengthen `retention.ms` by "
        "`pylog topic alter TOPIC --set retention.ms=MS`, if the disk has room.",
        verify="`pylog_group_lag_seconds` falls; the alert ends within a quarter of an hour.",
    ),
    "PylogGroupLagUnknown": Runbook(
        what="the probe on HOST has not judged the groups for five minutes: what it says of lag is old",
        look="`journalctl -u pylog-probe -n 50` for `groups_unknown`, which has the reason; `pylog cluster health`.",
        decide="A partition of `__consumer_offsets` without a leader keeps the probe from reading, and its groups from "
        "committing. A probe that is refused lacks a right: Read on that topic, Describe on the others.",
        act="No leader: as for PylogPartitionsLeaderless. Refused: grant the right to the probe's user.",
        verify="`pylog_group_lag_judged_timestamp_seconds` grows again.",
    ),
    "PylogGroupRebalances": Runbook(
        what="group GROUP rebalances again and again, and reads little meanwhile",
        look="`pylog group describe GROUP`: members, their hosts. `rate(pylog_rebalances_total[15m])` by cause.",
        decide="`expired`: members are silent for longer than `session.timeout.ms`, because they hang, are paused or "
        "cut off. `left` and `joined` in turn: they exceed `max.poll.interval.ms` with one batch, or their program "
        "crashes and is started again. `rejoined`: they subscribe to other topics each time.",
        act="Its owner lets a member take fewer records at a time (`max.poll.records`), lengthens "
        "`max.poll.interval.ms`, or mends the program. Static members (`group.instance.id`) bear restarts without a "
        "rebalance.",
        verify="`increase(pylog_group_rebalances_total[15m])` of the group falls to 0, and its lag becomes smaller.",
    ),
    "PylogZooKeeperServerDown": Runbook(
        what="ZooKeeper server SERVER does not serve",
        look="On the host of SERVER (HOST, if the inventory has that server), before any start: `ls "
        "/var/lib/pylog-zookeeper/version-2`. Empty "
        "on "
        "the only server: do not start it. Then `systemctl status pylog-zookeeper`; `journalctl -u pylog-zookeeper -n "
        "50`; `df -h`.",
        decide="With PylogZooKeeperQuorumLost: go on there. Without it a majority serves and brokers feel nothing; "
        "after one more failure leaders and topics could not change.",
        act="The only server, without its data: do not start it; the handbook has *When ZooKeeper has lost "
        "everything*. One of several, without its data: it copies the tree from the others. A disk that is full or "
        "broken is mended first. Then `systemctl start pylog-zookeeper`.",
        verify="`fab status` shows it as follower, leader or standalone.",
    ),
    "PylogZooKeeperQuorumLost": Runbook(
        what="ZooKeeper of DATACENTER has no majority",
        look="`fab status`: which servers are silent? On their hosts, before any start: `ls "
        "/var/lib/pylog-zookeeper/version-2`. Empty on the only server, or on a majority: start none. Then `systemctl "
        "status pylog-zookeeper`; `journalctl -u pylog-zookeeper -n 50`; `df -h`.",
        decide="Producers and consumers go on with the leaders that there are. A broker that fails now gets no "
        "successor, and topics and settings cannot be changed. Groups whose partition of `__consumer_offsets` has one "
        "replica in sync get NOT_COORDINATOR. `fab status` shows a majority: only the probe does not reach it.",
        act="A majority without data, or the only server without it: start nothing; the handbook has *When ZooKeeper "
        "has lost everything*. Hosts that cannot reach each other: mend the network first. Else `systemctl start "
        "pylog-zookeeper` where it is down: a majority is enough. Restart no broker meanwhile.",
        verify="`fab status` shows a leader and followers, or one standalone; `pylog cluster health` ends with 0. A "
        "broker that has not come back within the session time-out loses its leaderships to others; once it is in "
        "sync, "
        "`pylog partition elect` gives them back.",
    ),
    "PylogZooKeeperUnasked": Runbook(
        what="the probe on HOST cannot ask ZooKeeper how it is: its keys cannot be read, or are refused",
        look="On HOST: `journalctl -u pylog-probe -n 20` for `zookeeper_unasked`, which names the file or what TLS "
        "said; `fab status` asks the servers on their own hosts.",
        decide="This says nothing about ZooKeeper: `fab status` does. A file that is missing or that `pylog` may not "
        "read; a certificate that has expired, of the probe or of a server; an authority that one of them does not "
        "know.",
        act="`playbooks/site.yml` brings keys and rights. Expired: put a new certificate at the place of the old, and "
        "run it. The probe reads its files anew for each round and needs no restart.",
        verify="`pylog_zookeeper_unasked_servers` is 0, and `pylog_zookeeper_up` has every server.",
    ),
    "PylogZooKeeperUnreached": Runbook(
        what="broker BROKER on HOST has no session with ZooKeeper",
        look="`fab status`: do ZooKeeper's servers serve? `fab logs --host HOST --unit pylog-broker@BROKER`: lines "
        "with `session`. `pylog_store_connected` of the other brokers.",
        decide="All brokers: ZooKeeper is away, PylogZooKeeperQuorumLost fires or will. One broker: others lead what "
        "it led, and it comes back by itself once it reaches ZooKeeper. It is cut off (firewall, address), refused "
        "(PYLOG-0106 in its journal), or still starting and waiting.",
        act="Mend the way to port 2181 of the servers. Refused: the settings `zookeeper.*` of its file, or `pylog zk "
        "secure`. Restart no other broker meanwhile.",
        verify="`pylog_store_connected` is 1; `pylog cluster health --wait 600`. It leads nothing at first: `pylog "
        "partition elect`.",
    ),
    "PylogZooKeeperSlow": Runbook(
        what="ZooKeeper server SERVER takes over a tenth of a second for a request: VALUE s on average",
        look="`rate(pylog_zookeeper_sync_seconds_total[1m]) / rate(pylog_zookeeper_syncs_total[1m])`, the mean time of "
        "a sync of its log: under 10 ms is healthy, over 50 ms is slow. `pylog_zookeeper_outstanding_requests`, "
        "`pylog_zookeeper_num_alive_connections`.",
        decide="Records do not wait for ZooKeeper. Changes of topics, in-sync replicas and leaders do, and sessions "
        "that expire change leaders. Slow syncs: something else writes to the disk, or it fails; on the "
        "host of SERVER `iostat -x 1`, `pidstat -d 1`, `dmesg`. Many connections: a client opens "
        "sessions without end.",
        act="Stop what else writes to that disk. A disk that fails, in an ensemble: `playbooks/remove_zookeeper.yml`, "
        "then a server with another disk by `playbooks/site.yml`. The only server: `playbooks/backup_metadata.yml`, "
        "then `systemctl stop pylog-zookeeper`, copy `/var/lib/pylog-zookeeper` (or `zookeeper_data_log_dir`, if that "
        "is the slow disk) with `cp -a` to a sound disk, mount "
        "that "
        "in its place, and `systemctl start pylog-zookeeper`; records flow meanwhile. If it cannot be copied, the "
        "handbook has *When ZooKeeper has lost everything*. A client without end: the server's log has its address.",
        verify="Make a change, as `pylog topic create try-zookeeper`, then `pylog topic delete try-zookeeper`: "
        "`increase(pylog_zookeeper_syncs_total[5m])` is above 0, and that mean below 10 ms. Without a sync there is no "
        "mean, which proves nothing. `pylog_zookeeper_avg_latency` counts since the start of the server and stays "
        "high.",
    ),
    "PylogRetentionLate": Runbook(
        what="expired segments of HOST were not deleted for too long",
        look="On the host: `systemctl status cron`; `journalctl -t pylog-retention -n 50`.",
        decide="Is cron stopped, is its entry `/etc/cron.d/pylog-retention` gone, or does the command fail? In a "
        "cluster cron alone has expired segments deleted, so disks fill until it does."
        + _lost("retention", "retention"),
        act="Start cron; run `pylog retention --all` as the entry has it and read what it says; `playbooks/site.yml` "
        "brings the entry back." + _FOUND,
        verify="`pylog retention --all` ends with 0. The alert ends with the next run.",
    ),
    "PylogRetentionFailed": Runbook(
        what="retention could not look at a broker of HOST",
        look="On the host: `journalctl -t pylog-retention -n 50`; `pylog retention --all`.",
        decide="Is that broker down (PylogBrokerDown), or may the user `pylog` not reach its socket or directory?",
        act="Down: as for PylogBrokerDown. Rights: `playbooks/site.yml` sets them.",
        verify="`pylog retention --all` ends with 0.",
    ),
    "PylogBackupLate": Runbook(
        what="the metadata was not backed up on HOST for too long",
        look="On the host: `journalctl -t pylog-backup -n 20`; `ls -l /var/lib/pylog/backups`.",
        decide="Is cron stopped, is its entry `/etc/cron.d/pylog-backup` gone, does the command not reach ZooKeeper, "
        "or is the disk full? Backups of the other hosts are as good: without any, a lost ensemble is built from disks "
        "alone." + _lost("backup", "the backup"),
        act="Start cron, or run `pylog cluster backup` as the entry has it and read what it says; `playbooks/site.yml` "
        "brings the entry back." + _FOUND,
        verify="The alert ends with the next backup.",
    ),
    "PylogTransactionHangs": Runbook(
        what="an open transaction holds up readers of a partition that broker BROKER leads; silent for VALUE",
        look="`pylog txn hanging` lists the transactions that no coordinator will end; `pylog txn list --state Ongoing "
        "--state PrepareCommit --state PrepareAbort` those that one will, with how long they are open; "
        "`pylog_transaction_markers_due`; `pylog cluster health`.",
        decide="Listed as hanging: readers of committed records wait for it for ever. Ongoing: its producer lives and "
        "is "
        "slow, or its `transaction.timeout.ms` is long; the coordinator aborts it then. PrepareCommit or PrepareAbort: "
        "its "
        "end is decided and not yet in every partition; `pylog_transaction_markers_due` stays above 0, since a "
        "partition "
        "of it has too few replicas in sync or no leader. In no list: it has just ended. PYLOG-0219: a coordinator was "
        "not heard that may still end it; bring back the leader of the partition of `__transaction_state` that the "
        "message names, and look again.",
        act="Hanging: `pylog txn abort --hanging clicks:0 --start-offset 1842`, as the list prints it; "
        "readers of committed records do not get what it wrote. Ongoing: mend its producer, or `pylog txn abort "
        "ID`, which fences it. PrepareCommit or PrepareAbort: bring the partition's replicas back "
        "(PylogPartitionsUnderReplicated, PylogPartitionsLeaderless); the coordinator then ends it by itself.",
        verify="`pylog txn hanging` has no row; the alert ends within two scrapes.",
    ),
    "PylogShipLate": Runbook(
        what="the journal of HOST does not reach its topic",
        look="On the host: `systemctl status pylog-ship`; `journalctl -u pylog-ship -n 20`; "
        "`pylog_ship_waiting_entries`.",
        decide="No entry is lost while the journal keeps it (`journalctl --disk-usage`, SystemMaxUse). Entries wait: "
        "the brokers do not acknowledge, see their alerts. `session_ended` names what they refuse. None waits and the "
        "unit runs: journalctl ended or hangs. The unit does not run: start it." + _lost("ship", "the shipper"),
        act="Mend what the shipper names, or `systemctl restart pylog-ship`: it goes on where it stopped." + _FOUND,
        verify="`pylog_ship_waiting_entries` falls to 0; the alert ends within a minute.",
    ),
    "PylogBalancerWithoutBroker": Runbook(
        what="no broker answers the load balancer on HOST",
        look="`pylog cluster health` with the brokers' own addresses; `fab logs --host HOST --unit "
        "pylog-load-balancer`.",
        decide="Brokers well: the way between them and this host is cut. Brokers away: that is the fault, see "
        "PylogBrokerDown.",
        act="Mend the way (firewall, routes, `pylog_trusted_networks`), or the brokers.",
        verify=_GONE,
    ),
    "PylogClockWrong": Runbook(
        what="the clock of HOST is more than 30 s off",
        look="`timedatectl` on the host; `systemctl status systemd-timesyncd` or chrony.",
        decide="No NTP client, or one that reaches no server? A virtual machine that was paused?",
        act="Start the NTP client and let it step. Records that brokers stamped meanwhile keep wrong times; "
        "retention goes by them.",
        verify="`timedatectl` says `System clock synchronized: yes`.",
    ),
    "PylogMemoryShort": Runbook(
        what="HOST has hardly any memory left: VALUE %",
        look="`systemd-cgtop -m` on the host.",
        decide="The page cache counts as free, so a program took it. A broker keeps about 50 MB and some for "
        "each partition and connection: "
        "more is worth `fab bundle`.",
        act="End or move what does not belong there; `systemctl restart` of a unit that grew without reason, "
        "brokers one at a time.",
        verify=_GONE,
    ),
    "PylogMirrorLags": Runbook(
        what="the mirror is more than five minutes behind with TOPIC-PARTITION: VALUE",
        look="`pylog mirror status --config /etc/pylog/mirror.yml` on the mirror's host; `fab logs --host HOST "
        "--unit pylog-mirror`.",
        decide="All partitions: the link is full or slow. Some: their leader, or a burst. Does it shrink or grow?",
        act="Growing: add a host to `pylog_mirror` and run `playbooks/mirror.yml`. Is the source's retention "
        "longer than the lag? Else lengthen it.",
        verify="`pylog mirror status --config /etc/pylog/mirror.yml --wait 600`.",
    ),
    "PylogMirrorHearsNothing": Runbook(
        what="the mirror on HOST gets no answer from cluster CLUSTER for VALUE",
        look="From the mirror's host: `pylog cluster health --bootstrap HOST:PORT` with that cluster's brokers.",
        decide="No answer: the link is cut, or that cluster is down. An answer: the mirror's own configuration "
        "names other brokers.",
        act="Mend the link. What is not read yet lags and is not lost while the source keeps it.",
        verify="`pylog mirror status --config /etc/pylog/mirror.yml --wait 600`.",
    ),
    "PylogMirrorTopicRefused": Runbook(
        what="the target of the mirror on HOST does not take some topics as they are: VALUE",
        look="`fab logs --host HOST --unit pylog-mirror` names each topic with the target's reason.",
        decide="A setting that the target does not know, more replicas than it has brokers, or a topic of that "
        "name there that begins at a later offset?",
        act="Set `mirror_replication_factor`, or leave the topic out by `mirror_exclude`; then "
        "`playbooks/mirror.yml`.",
        verify="The metric `pylog_mirror_refused_topics` is 0.",
    ),
    "PylogMirrorForgot": Runbook(
        what="records were deleted at the source before HOST mirrored them",
        look="`pylog audit report --ledger LIVE --ledger OFFLINE --format wide` names topic, window and producer.",
        decide="Gone for the target for good. Does the lake, or a group of the source, still have them?",
        act="Lengthen the source's retention beyond the longest cut you want to survive: `pylog topic alter "
        "TOPIC --set retention.ms=604800000`.",
        verify="The alert does not come again; the report of new windows is complete.",
    ),
    "PylogMirrorLeftOut": Runbook(
        what="the mirror on HOST left out records of TOPIC, which no client could unpack or send",
        look="`journalctl -u pylog-mirror --grep left_out` on HOST names partition, first and last offset, and the "
        "reason. `pylog consume TOPIC --bootstrap SOURCE --partition N --from FIRST --exit` tries to read them.",
        decide="Such a batch unpacks to more than clients take, about 60 to 100 MB, or not at all. A producer does "
        "not make one by accident. The target lacks these offsets; the source has them until its retention takes them.",
        act="Find the user who writes TOPIC: `pylog acl list`. Take the right away, or have the producer send smaller "
        "batches, and send what was in these again.",
        verify="The metric `pylog_mirror_left_out_total` stands still.",
    ),
    "PylogMirrorGroupsLate": Runbook(
        what="for VALUE the mirror on HOST has not carried all that the source's groups committed",
        look="`journalctl -u pylog-mirror --grep groups_not_carried` on HOST names the group or the cluster, and why.",
        decide="A coordinator is away: a partition of `__consumer_offsets` has no leader in the source, which has lost "
        "brokers. The checkpoints of its groups stay in the target as they were carried last.",
        act="Bring the source's brokers back. If they do not come back, `switch_over` with "
        "`switch_over_source_lost=true` moves the groups by what was carried.",
        verify="`pylog_mirror_groups_age_seconds` stays below a minute.",
    ),
    "PylogMirrorParked": Runbook(
        what="the target of the mirror on HOST refused records of TOPIC with ERROR, which are parked: within an hour "
        "VALUE",
        look="`pylog explain ERROR` says what the target's answer means. On a host of the mirror, `pylog mirror resend "
        "--config /etc/pylog/mirror.yml` lists what is parked: "
        "topic, partition, offset in the source, and the target's reason. `pylog consume pylog.parked.live "
        "--bootstrap TARGET --exit --format json` shows the records.",
        decide="No key, and TOPIC is compacted: the producer is at fault, TOPIC was not meant to be compacted, or it "
        "was "
        "made compacted after the record was written. Too long: `max.message.bytes` of TOPIC was lowered after the "
        "record was written. Compare `pylog config describe topic TOPIC` in both clusters, each by its `--bootstrap`. "
        "The mirror gives the target the source's own settings of TOPIC every half minute, and 1 KiB more of "
        "`max.message.bytes`: it undoes such changes made in the target.",
        act="Mend the producer, or the topic's settings in the source: `pylog topic alter TOPIC --bootstrap SOURCE "
        "--set "
        "max.message.bytes=2000000`, or `pylog topic alter TOPIC --bootstrap SOURCE --set cleanup.policy=delete` if it "
        "was not meant to be compacted, which has `retention.ms` delete its older records. Once `pylog config "
        "describe topic TOPIC --bootstrap TARGET` shows it, `pylog "
        "mirror resend --config /etc/pylog/mirror.yml --execute` sends parked records to where they belong; what is "
        "refused again stays "
        "parked.",
        verify="The metric `pylog_mirror_parked_total` stands still, and `pylog mirror resend --config "
        "/etc/pylog/mirror.yml` lists nothing that "
        "TOPIC should have.",
    ),
    "PylogRegistryPrimaryMissing": Runbook(
        what="DATACENTER has no registry that writes, or more than one",
        look="`fab status`; `fab logs --host HOST --unit pylog-registry` on each of its hosts.",
        decide="ZooKeeper without a majority: nobody can be elected. Else one that was elected cannot write its "
        "topic `_schemas`.",
        act="Mend ZooKeeper or the topic's replicas; then restart one registry after the other.",
        verify="The metric `pylog_registry_is_primary` is 1 on one of the hosts and 0 on the others, and a schema can "
        "be registered.",
    ),
    "PylogRegistryFollowsLate": Runbook(
        what="the registry on HOST has not heard of the one that it follows for minutes",
        look="On HOST: `journalctl -u pylog-registry -n 50`: `event=cannot_follow` has the reason.",
        decide="The link between the datacenters is cut: nothing is lost, new schemas come later. The other datacenter "
        "is gone for good: nobody can register schemas.",
        act="Mend the link. If the other is gone for good, empty `registry_source` of this datacenter and run "
        "`playbooks/registry.yml`: this registry takes changes from then on, with ids above all that it has seen.",
        verify="The metric `pylog_registry_followed_age_seconds` is below 10.",
    ),
    "PylogRegistryConflict": Runbook(
        what="ids of the registry that HOST follows stand for other schemas there",
        look="On HOST: `journalctl -u pylog-registry`: each `event=id_conflict` has subject, version and id.",
        decide="Somebody registered schemas here before this registry followed the other, so both gave the same ids.",
        act="Keep the two apart: set `registry_topic` of this datacenter to a new topic and run "
        "`playbooks/registry.yml`, so that it takes everything over anew. Records that were written here with the old "
        "ids must be read with the old topic's registry.",
        verify="The metric `pylog_registry_conflicts` is 0.",
    ),
    "PylogAuditFindings": Runbook(
        what="the audit found records of TOPIC KIND",
        look="`pylog audit report --ledger LIVE --ledger OFFLINE --topic TOPIC --format wide`: tier, window, "
        "producer and numbers, or partition and offsets.",
        decide="Lost at `live`: the producer used acks 0 or 1, or its host died before it sent. At `mirror`: "
        "PylogMirrorForgot. At `lake`: "
        "the job's dead letters. Duplicates: a producer without idempotence sent again, or a mirror that crashed.",
        act="At `lake`: `pylog lake status LAKE`, and load again. Else the records are with the producer's "
        "owner; say which numbers.",
        verify="`pylog audit report --ledger LIVE --ledger OFFLINE` with `--from` and `--to` of that time ends with 0.",
    ),
    "PylogAuditUnknown": Runbook(
        what="a producer of TOPIC ended without its closing count",
        look="`pylog audit report --ledger LIVE --ledger OFFLINE --topic TOPIC`: producer, host and window.",
        decide="It was killed, or its host died, before it had said what it sent last: some of that may not have "
        "arrived. If it still runs, it does not reach `_audit`.",
        act="Ask its owner whether it sent its last records again. The finding ends with the time that is compared.",
        verify="The metric `pylog_audit_findings` of kind `unknown` is 0.",
    ),
    "PylogAuditLate": Runbook(
        what="the tiers were not compared for a quarter of an hour",
        look="On HOST: `systemctl status pylog-audit-report.timer`; `journalctl -u pylog-audit-report -n 50`.",
        decide="Is the timer stopped, or does the comparison fail: a datacenter that is away (exit code 3), an "
        "account that is missing (4)?" + _lost("audit", "the comparison"),
        act="Start the timer; mend what the journal names." + _FOUND,
        verify="`systemctl start pylog-audit-report`, then the metric `pylog_audit_judged_timestamp_seconds` is new.",
    ),
    "PylogUnitFailed": Runbook(
        what="NAME failed on HOST and is not started again",
        look="On the host: `systemctl status NAME`; `journalctl -u NAME -n 50`.",
        decide="Timers and jobs that run once, such as a load, fail and wait for their next turn; a server that "
        "failed stays away.",
        act="Mend what the journal names, then `systemctl start NAME`.",
        verify="`systemctl is-failed NAME` says no.",
    ),
    "PylogUnitRestarts": Runbook(
        what="NAME on HOST ends again and again",
        look="On the host: `journalctl -u NAME -n 100`: the lines before each start.",
        decide="Does it end by itself (its last line has the reason), is it killed for memory (`journalctl -k -g "
        "oom`), or does its watchdog end it (`Watchdog timeout`)?",
        act="A new release or configuration: go back (`rolling_upgrade` with the former release checked out). "
        "Memory: see PylogMemoryShort. Else `fab bundle` for whoever mends it.",
        verify="No restart in a quarter of an hour.",
    ),
    "PylogHostDiskFull": Runbook(
        what="file system MOUNTPOINT of HOST is nearly full: VALUE % free",
        look="On the host: `df -h`; `du --one-file-system --max-depth 3 MOUNTPOINT | sort -n | tail`.",
        decide="Journals, core dumps, releases that nothing runs, or data that should be on a data disk: is each of "
        "them mounted (`findmnt`)?",
        act="`journalctl --vacuum-size 500M`; delete what is nobody's. A data disk that is not mounted: mount it,"
        " then `playbooks/site.yml`.",
        verify="The alert ends within five minutes.",
    ),
    "PylogLoadLate": Runbook(
        what="topics were not loaded into the lake of HOST for too long",
        look="On the host: `systemctl status pylog-ingest.timer pylog-ingest`; `journalctl -u pylog-ingest -n 50`; "
        "`pylog lake status DIR`, where DIR is `ingest_lake_dir` (`/var/lib/pylog/lake` unless the inventory says "
        "otherwise); `pylog cluster health`.",
        decide="Does the load run and take long, does it fail, or does nothing start it? `pylog lake status DIR` says "
        "when "
        "the last load that succeeded ended; why one failed is in the journal alone. Brokers that do not answer make "
        "it "
        "fail (PylogBrokerDown, PylogPartitionsLeaderless). With `ingest_continuous` the service runs all the time and "
        "the timer is off on purpose." + _lost("ingest", "the load"),
        act="Nothing starts it: `systemctl start pylog-ingest.timer`, or with `ingest_continuous` `systemctl start "
        "pylog-ingest`. It takes long: raise `ingest_parallelism`, or lower `ingest_max_offsets_per_commit` for "
        "smaller "
        "commits, and run `playbooks/site.yml`. It fails: what the journal names." + _FOUND,
        verify="The first line of `pylog lake status DIR` has `loaded at` with a time of the last minutes.",
    ),
    "PylogLoadBehind": Runbook(
        what="the lake of HOST falls behind with topic TOPIC for an hour; offsets that it lacks: VALUE",
        look="`pylog_ingest_lag_offsets` and `pylog_ingest_records` on the lake's dashboard; on the host `journalctl "
        "-u pylog-ingest -n 50`: what each load lands and how long it takes.",
        decide="Does each load land as much as it may (`ingest_max_offsets_per_commit`, `ingest_max_bytes_per_commit`)"
        "? Then the limit is too low, or loads are too rare. Does a load take as long as `ingest_interval_s`? Then it "
        "lacks processors or partitions. Did TOPIC grow for good, or is it a backfill that ends? Is a transaction open "
        "there (PylogTransactionHangs)? Readers of committed records wait for it.",
        act="Raise the limits or `ingest_parallelism`, or lower `ingest_interval_s`, in the inventory, and run "
        "`playbooks/site.yml`. What retention deletes before it is loaded is lost: see how far `retention.ms` "
        "of TOPIC is away.",
        verify="`pylog_ingest_lag_offsets` falls from load to load.",
    ),
    "PylogLoadTopicStopped": Runbook(
        what="topic TOPIC is loaded no longer: CODE",
        look="`pylog explain CODE`; `pylog lake status DIR` on the host of the load.",
        decide="The code says why: offsets that are gone, a topic that was made again, a record that is damaged. The"
        " other topics go on.",
        act="What `pylog explain CODE` says. Nothing of the topic is skipped until you accept it.",
        verify="`pylog lake status DIR` has no topic that stopped.",
    ),
    "PylogConnectDown": Runbook(
        what="the worker of Kafka Connect on HOST does not answer",
        look="On the host: `systemctl status pylog-connect`; `journalctl -u pylog-connect -n 50`.",
        decide="The worker names a topic or a setting and ends: correct it. It was killed or its heap is full: see "
        "below. It runs and cannot reach brokers: see their alerts. Other workers took its tasks over by "
        "now, where there are any.",
        act="`systemctl restart pylog-connect` on the host. OutOfMemoryError in the journal: raise "
        "`connect_heap_mib` and run `playbooks/connect.yml`.",
        verify="`pylog connect status --wait 120` on the host; the alert ends within a minute.",
    ),
    "PylogConnectTaskFailed": Runbook(
        what="connector CONNECTOR of DATACENTER has failed and stays so",
        look="On a worker's host: `pylog connect status`, with `--url https://127.0.0.1:8083 --ca "
        "/etc/pylog/ca.pem --certificate /etc/pylog/connect.pem` where hosts are secured. It names tasks, "
        "worker and cause.",
        decide="The watch has restarted it after 10 s and goes on after waits that double. A database or bucket "
        "that is away: nothing to do but wait for it. A setting, a right or a record: it stays failed until "
        "somebody mends that.",
        act="Mend what it names. Settings: correct `connect_connectors` and run `playbooks/connect.yml`. A "
        "topic that it may not use: `connect_reads` or `connect_writes`. A record: docs/connect.md, Dead "
        "letters.",
        verify="`pylog connect status --wait 120 --consecutive 3` ends with 0.",
    ),
    "PylogConnectRestarts": Runbook(
        what="connector CONNECTOR of DATACENTER fails again and again",
        look="On each worker's host: `journalctl -u pylog-connect-watch -n 50`: every restart with connector, "
        "tasks and cause.",
        decide="One cause again and again: what the connector reads or writes ends its connections, or is too slow "
        "for its time limits. Several connectors at once: the workers, or the brokers.",
        act="Mend the cause; `pylog connect pause NAME` stops the attempts meanwhile.",
        verify="`pylog_connect_restarts_total` stands still; the alert ends an hour later.",
    ),
    "PylogConnectWatchSilent": Runbook(
        what="nobody watches the connectors on HOST",
        look="On the host: `systemctl status pylog-connect-watch`; `journalctl -u pylog-connect-watch -n 20`.",
        decide="Connectors go on without it, but a task that fails stays failed and no alert tells. The unit runs: "
        "the disk of /var/lib/pylog/metrics is full, or the node exporter does not read it.",
        act="`systemctl restart pylog-connect-watch`; free the disk.",
        verify="`pylog_connect_looked_timestamp_seconds` moves; the alert ends within a minute.",
    ),
    "PylogLakeDeadLetters": Runbook(
        what="records of topic TOPIC do not decode",
        look="`pylog lake status DIR`; the files below `DIR/_dead_letters/topic=TOPIC` have the reason.",
        decide="A schema that is unknown, a producer that writes something else than its schema, or damaged bytes?",
        act="Mend the schema or the producer; then `pylog lake retry DIR --topic TOPIC` loads what decodes now.",
        verify="The number of dead letters grows no more.",
    ),
    "PylogStreamSilent": Runbook(
        what="query QUERY of HOST does not run",
        look="On the host: `systemctl status 'pylog-stream@*'`; `journalctl -u 'pylog-stream@*' -n 50`. No QUERY: none "
        "of the host's queries ever ran.",
        decide="Does it end with an error (its last lines have the code), was it stopped by hand, or is the host away?"
        + _lost("stream", "each query"),
        act="What the journal names. A topic that was made again: `pylog stream reset`, or `playbooks/streams.yml -e "
        "reset_query=QUERY`. Stopped by hand: `systemctl start pylog-stream@QUERY`." + _FOUND,
        verify="`pylog group describe stream-QUERY` shows a lag that falls.",
    ),
    "PylogAlertsWork": Runbook(
        what="alerts reach whoever reads this; it fires for ever",
        look="Nothing is wrong while it comes.",
        decide="It is there to be missed: when it stops, Prometheus, Alertmanager or the way from them to you is "
        "down.",
        act="Route it to a service that raises an alarm when it hears nothing for some minutes.",
        verify="It comes.",
    ),
}  # fmt: skip
"""Alert -> the way through it."""
