"""The catalogue of everything that can end a command without success: a stable code, its cause and its remedy.

code => "PYLOG-" 4 digits
        00xx  the command line and its settings          01xx  reaching a cluster, a host, a store
        02xx  the state of a cluster, a group, a topic   03xx  files of this host
        1nnn  what a broker answers, where nnn is the protocol's own error code (1999: UNKNOWN_SERVER_ERROR)

A code never changes its meaning and is never given to another fault; `pylog explain` and docs/errors.md read this.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from pylog.errors import ErrorCode, PylogError, fault_number


class Exit(IntEnum):
    """Exit codes of every command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    UNKNOWN = 4
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to end without success.

    Attributes:
        number: of its code.
        what: what went wrong, in one clause.
        cause: why that happens, in sentences.
        remedy: what to do about it, in sentences.
        exit_code: what the process ends with.
    """

    number: int
    what: str
    cause: str
    remedy: str
    exit_code: Exit = Exit.FAILED

    @property
    def code(self) -> str:
        """How people and scripts name it."""
        return f"PYLOG-{self.number:04}"


BUG = Fault(
    1,
    "this is a bug in pylog",
    "Something happened that no part of pylog expected.",
    "Run the command again with PYLOG_DEBUG=1, which shows where it happened, and report that.",
)
PART_FAILED = Fault(
    2,
    "a part of pylog failed",
    "A part of pylog could not do its work; the message says why.",
    "Read the message; `pylog cluster health` and the broker's journal show the surroundings.",
)
INTERRUPTED = Fault(
    3,
    "interrupted",
    "Somebody pressed Ctrl-C or ended a question without an answer.",
    "Nothing needs to be done; the same command can be run again.",
    Exit.INTERRUPTED,
)
UNKNOWN_CODE = Fault(
    4,
    "there is no such code",
    "`pylog explain` knows the codes that pylog prints: PYLOG-0001, or just 1.",
    "List them all with `pylog explain`.",
    Exit.USAGE,
)
COMMAND_LINE = Fault(
    10,
    "the command line is wrong",
    "There is no such command or option, or one lacks its value.",
    "Read the command's help: `pylog COMMAND --help`.",
    Exit.USAGE,
)
OPTION_WRONG = Fault(
    11,
    "an option is wrong",
    "The value of an option or argument has the wrong form, or is outside its range.",
    "Use one of the values that the message and `pylog COMMAND --help` name.",
    Exit.USAGE,
)
OPTIONS_CONFLICT = Fault(
    12,
    "options do not fit together",
    "Options exclude each other, or one needs another.",
    "Give what the message wants; `pylog COMMAND --help` shows all options.",
    Exit.USAGE,
)
SETTING_WRONG = Fault(
    13,
    "a setting is wrong",
    "A key of the settings file (~/.config/pylog/config.yml, or what PYLOG_CONFIG names) or a PYLOG_ variable is "
    "unknown or has a wrong value.",
    "Correct the line or variable that the message names. Flags win over variables, variables over the file.",
    Exit.USAGE,
)
OPEN_ADDRESS = Fault(
    16,
    "a standalone broker would be open to other machines",
    "`--standalone` has no encryption, no login and no rights, so it listens on loopback alone.",
    'Give a broker with encryption and login a file (docs/security.md, "A single broker"), or pass `--open` on a '
    "network that you trust.",
    Exit.USAGE,
)
NOT_CONFIRMED = Fault(
    14,
    "nothing was changed",
    "The command asks before it destroys something, and the answer was not yes.",
    "Answer y, or give --yes.",
)
FORMAT_WRONG = Fault(
    15,
    "the format string is wrong",
    "A letter after % or \\ means nothing here, or input lines cannot be split by it.",
    "`pylog consume --help` and `pylog produce --help` list the letters.",
    Exit.USAGE,
)

UNREACHABLE = Fault(
    100,
    "nobody answers",
    "No broker answered in time: the address is wrong, a firewall is between, no broker runs, or it wants TLS and a "
    "login.",
    "Check --bootstrap and PYLOG_BOOTSTRAP, and the login (`security` in the file that PYLOG_CONFIG names); on the "
    "broker's host, `systemctl status 'pylog-broker@*'`.",
    Exit.UNREACHABLE,
)
CLIENT_REFUSES = Fault(
    101,
    "the client library refuses",
    "librdkafka does not take a property, or a record cannot be sent at all, for instance because it is too large.",
    "Check --property and `properties` in the settings file; see the message for a record.",
)
PEER_SPEAKS_OTHERWISE = Fault(
    102,
    "the other side does not speak the protocol",
    "What answered is no Kafka broker, speaks TLS where plain text is expected or the other way round, or is damaged.",
    "Check host, port and `security` in the settings file; `pylog cluster info --bootstrap HOST:PORT` asks a single "
    "broker.",
)
STORE_UNREACHABLE = Fault(
    103,
    "the cluster store does not answer",
    "ZooKeeper has no quorum, takes only TLS, or its address is wrong.",
    "Check --zookeeper and PYLOG_ZOOKEEPER, or give --config FILE of a broker, which has its TLS; on its host, "
    "`systemctl status pylog-zookeeper`.",
    Exit.UNREACHABLE,
)
HOST_BROKERS_SILENT = Fault(
    104,
    "brokers of this host do not answer",
    "A broker does not run, or its admin socket cannot be reached.",
    "See `systemctl status 'pylog-broker@*'`, and run the command as root or as the broker's user.",
    Exit.UNREACHABLE,
)

STORE_REFUSES = Fault(
    106,
    "the cluster store refuses our identity",
    "The nodes in ZooKeeper have ACLs, and the identity of this program (zookeeper.auth.user, or its certificate) is "
    "not in them or lacks a right.",
    "Give the program the identity of the brokers: --config with a broker's file. If the tree is closed to the brokers "
    "too, run `pylog zk secure` or `pylog zk open` with an identity that is in the ACLs.",
)

CERTIFICATE_NOT_VALID = Fault(
    107,
    "a certificate has expired or is not valid yet",
    "The certificate of the broker or of this client is not valid at this time, or the clock of one of both is wrong.",
    "Compare the dates with `date -u`: `openssl s_client -connect HOST:PORT </dev/null | openssl x509 -noout -dates`. "
    "playbooks/site.yml renews those that the bundle made; replace your own.",
    Exit.UNREACHABLE,
)
CERTIFICATE_NOT_TRUSTED = Fault(
    109,
    "a certificate is not trusted",
    "The broker's certificate is of an authority that is not in ca_file, or is for another address; or the broker asks "
    "for a certificate that this client does not have.",
    "Check `ca_file`, `certificate_file` and `key_file` in `security`, and connect to a name that is in the broker's "
    "certificate.",
    Exit.UNREACHABLE,
)

UNHEALTHY = Fault(
    200,
    "the cluster is not as wanted",
    "A broker is missing or silent, a partition has no leader or lacks a replica in sync, or what was asked for with "
    "options does not hold.",
    "Each problem is listed; a broker that is down: `systemctl status pylog-broker@ID` on its host. "
    "`pylog cluster health --wait 600` waits until all is well.",
)
NO_SUCH_PARTITION = Fault(
    201,
    "the topic has no such partition",
    "Partitions are numbered from 0.",
    "`pylog topic describe TOPIC` lists them.",
)
GROUP_IS_ALIVE = Fault(
    202,
    "the group has members",
    "Offsets of a living group belong to its members.",
    "Stop its consumers, then look: `pylog group describe GROUP`.",
)
GROUP_READ_NOTHING = Fault(
    203, "the group has read nothing", "It has no committed offset that could be moved.", "Name topics: --topic TOPIC."
)
PLAN_IMPOSSIBLE = Fault(
    204,
    "the replicas cannot be placed as asked",
    "There are fewer brokers than replicas, or a broker that is named is not registered.",
    "`pylog cluster info` lists the brokers.",
)
MOVE_FAILED = Fault(
    205,
    "a partition was not moved",
    "The controller refused the move, or it was not done in time.",
    "`pylog partition reassign --status` shows what is under way; --cancel calls it off.",
)
NOT_DELIVERED = Fault(
    206,
    "records were not produced",
    "Some records were refused, or nobody acknowledged them in time.",
    "The message counts them and says why the first one failed; produce them again.",
)
NO_SUCH_NODE = Fault(
    207,
    "there is no such node in the cluster store",
    "Nothing is kept under this path.",
    "`pylog zk show /` lists what there is.",
)
ELECTION_FAILED = Fault(
    208,
    "a leader was not elected",
    "The preferred replica is not in sync, or not there.",
    "`pylog topic describe TOPIC` shows leaders and replicas in sync.",
)
MIRROR_BEHIND = Fault(
    212,
    "the mirror is behind",
    "Records of the source have not arrived in the target in time.",
    "`pylog mirror status` shows which partitions; on the mirror's hosts, `systemctl status pylog-mirror`.",
)
TRANSACTION_HANGS = Fault(
    216,
    "a transaction hangs",
    "A partition has a transaction open that no coordinator will end. Readers of committed records wait before it.",
    "`pylog txn hanging` prints the command that ends it. What it wrote is not shown to them.",
)
TRANSACTION_NOT_OPEN = Fault(
    217,
    "there is no such open transaction",
    "The transaction has ended meanwhile, or another one is open there.",
    "`pylog txn list` shows those of transactional ids, `pylog txn hanging` those that nobody will end.",
)
COORDINATORS_UNCLEAR = Fault(
    219,
    "nobody can tell which transactions hang",
    "A partition of `__transaction_state` has no leader or has just moved, or the user may not describe all "
    "transactional ids: a coordinator that was not heard may still end the transaction, and records would be lost.",
    "`pylog topic describe __transaction_state` shows its leaders. Try again once each partition has one, with "
    "DESCRIBE on every transactional id.",
    Exit.UNKNOWN,
)
NO_BROKER_HERE = Fault(
    209,
    "there is no broker on this host",
    "No admin socket was found.",
    "See `systemctl status 'pylog-broker@*'`.",
    Exit.UNREACHABLE,
)
RESTORE_REFUSED = Fault(
    213,
    "metadata is not backed up, or not restored",
    "The backup is damaged or of another cluster, a broker runs or was not read, or the store changes all the time; "
    "nothing was written, or a rerun goes on from there.",
    "The message says what does not fit; `pylog cluster restore --help` shows the order of steps.",
)
DRILL_REFUSED = Fault(
    214,
    "the drill was refused",
    "A drill begins only on a cluster that is well, where the inventory says drills_allowed: true for every host of "
    "the datacenter, and where the host has what the fault needs.",
    "The message says which of these is missing; `fab drills` lists the drills, and why other rows are none.",
)
DRILL_FAILED = Fault(
    215,
    "the cluster did not stand a drill",
    "Records were lost, doubled or refused, the cluster did not get well again, or something was left on a host.",
    "The message says what; `fab bundle` packs what is needed to find out why.",
)
BROKER_ENDED = Fault(
    210,
    "the broker could not run",
    "It could not open its data, its port or its store; its log has the reason.",
    "Read the line `cannot run reason=` above, remove the cause, and start it again.",
)
TOPICS_REFUSED = Fault(
    220,
    "the change to the topics was refused",
    "What a document wants would remove partitions or move replicas, or the brokers refuse it; nothing was changed.",
    "Each refusal names topic, what was found and what is wanted: correct the document, or take the step it names.",
)

CONNECTORS_REFUSED = Fault(
    221,
    "the change to the connectors was refused",
    "A worker of Kafka Connect refuses the settings of a connector, or what was asked of one.",
    "The message is Connect's own and names connector and setting: correct the document, or take the step it names.",
)
CONNECTORS_UNWELL = Fault(
    222,
    "connectors are not as they should be",
    "A connector or one of its tasks has failed, is not placed on a worker yet, or is not in the state it should have.",
    "The lines above name connector, task, worker and cause. Mend the cause, then `pylog connect restart NAME`.",
)
RIGHTS_LACKING = Fault(
    223,
    "users of the group lack rights in the other cluster",
    "An ACL lets them read in the cluster that the group would leave, and none does in the one that it would enter.",
    "Give them the rights that are listed: `pylog acl add`, or `users_wanted` in the inventory. A super user "
    "needs none.",
)
WORKER_AWAY = Fault(
    108,
    "no worker of Kafka Connect answers",
    "Nothing answers at the address, or what answers is no worker.",
    "Check `--url`, and whether the worker runs: its log says why it does not.",
    Exit.UNREACHABLE,
)

BROKER_BUG = Fault(
    211,
    "a bug in pylog ended the broker",
    "A part of the broker ended as nobody expected. The process ends itself rather than stay in the cluster without "
    "it, and systemd starts it again.",
    "Report what the broker's journal says around this code; `pylog cluster health --wait 600` tells when it is back.",
)

CONFIG_WRONG = Fault(
    300,
    "the configuration is wrong",
    "A key is unknown or has a wrong value; the message has file and line.",
    "Correct it, then `pylog config check FILE`.",
)
DISK_FAILED = Fault(
    301,
    "the disk failed",
    "Reading, writing or syncing a file failed; the partition goes offline.",
    "Look at the kernel's log (dmesg) and the free space (df); replace the disk or free space.",
)
LOG_DAMAGED = Fault(
    302,
    "the log is damaged",
    "Bytes of a segment do not match their checksum, size or order.",
    "With more than one replica: stop this broker, move the partition's directory away and start it again; it fetches "
    "a good copy from the leader.",
)
CERTIFICATE_EXPIRED = Fault(
    315,
    "a certificate or a revocation list is not valid now",
    "A file of certificates has expired or is not valid yet, or the revocation list in `ssl.crl.location` has passed "
    "its next update: with it, nobody who shows a certificate could be let in. A broker waits and does not start.",
    "Put a valid file in its place; the broker looks every five seconds and then starts by itself. `site` replaces "
    "certificates that it signed. If the file is right, correct the host's clock.",
)
SEALED = Fault(
    316,
    "a backup cannot be opened",
    "It was sealed with a key that the key file does not have, or it was cut or changed since.",
    "Name the key that was in force when it was made: `--key-file FILE` may have several, one a line. Otherwise take "
    "another backup.",
)
FILE_MISSING = Fault(
    303,
    "the file is not there",
    "There is no such file or directory, or it is not of the wanted kind.",
    "Name a data directory, a partition's directory or a segment file.",
)
FILE_UNREADABLE = Fault(
    304,
    "a file cannot be read or written",
    "Permission, space or the disk itself are in the way.",
    "Run the command as a user who may, or name another place.",
)
STATE_DAMAGED = Fault(
    305,
    "the state is not usable",
    "The file that remembers how far the journal was shipped holds something else.",
    "Remove it; the whole journal is shipped again, and some entries come twice.",
)
JOURNAL_ENDED = Fault(
    306,
    "the host's journal ended",
    "journalctl stopped, so nothing can be shipped.",
    "See `journalctl --verify` and `systemctl status systemd-journald`; start pylog-ship again.",
)
DATA_LOSS = Fault(
    307,
    "records are gone before they were read",
    "Retention deleted what a query or job had still to read, or the topic was made anew.",
    "Lengthen the topic's retention. To go on without them: `pylog lake accept LAKE TOPIC` for the load job, "
    "failOnDataLoss=false for a query.",
)
POSITION_WRONG = Fault(
    310,
    "a checkpoint does not belong to these topics",
    "It was written for other topics or another cluster, or a topic was made again or cut since.",
    "Name the cluster it belongs to. `pylog lake accept LAKE TOPIC` has the load job go on with a topic that was made "
    "again or cut; a query takes a new checkpoint.",
)
LAKE_DAMAGED = Fault(
    308,
    "the lake cannot be used",
    "Files of the lake contradict each other, or another writer holds it.",
    "See that no second job runs on the same directory; the message names the file.",
)
READER_FAILED = Fault(
    309,
    "an independent reader failed",
    "A program that counts records beside pylog did not come to an end.",
    "The message has its output; run it by hand.",
)
COUNTS_DIFFER = Fault(
    311,
    "readers counted different records",
    "Records are missing, or are there twice, between what was produced, what the brokers keep and what landed.",
    "The differences are listed by topic; `pylog log verify DIR` and the ingestion job's journal come next.",
)
COUNTS_UNKNOWN = Fault(
    313,
    "nobody can tell yet whether something is missing",
    "A tier that was asked about is not counted up to its end, or nobody counts there.",
    "Ask again later; see that `pylog-audit` runs in each datacenter, and `pylog-audit-lake.timer` where the lake is.",
    Exit.UNKNOWN,
)
RECORDS_UNDECIDED = Fault(
    314,
    "a transaction that is to be read is still open",
    "The end that was asked for lies behind the beginning of an open transaction.",
    "Ask for an end before it, or try again once the transaction has ended. A query with "
    "isolationLevel=read_uncommitted reads it as it is.",
)
ROW_UNWRITABLE = Fault(
    317,
    "a row cannot be written to a topic",
    "A column holds what no record can have: no topic, a partition that the topic lacks, or a time before 1970.",
    "The message names the column and what it holds: change the query that makes it.",
)
CHANGE_NOT_WRITTEN = Fault(
    318,
    "a change was not made, since it could not be written down",
    "The console writes down who changes what before it does so, and its topic `_console_changes` cannot be written.",
    "The message says why. The console's own user needs Create, Write, Describe and DescribeConfigs of this topic.",
)
HOST_UNREACHABLE = Fault(
    105,
    "a host cannot be reached",
    "SSH found no host there, or no way in.",
    "Check the address in the inventory: `ssh HOST true`.",
    Exit.UNREACHABLE,
)
INVENTORY_WRONG = Fault(
    312,
    "the inventory cannot be used",
    "It cannot be read, or does not name the host that was asked for.",
    "`ansible-inventory -i INVENTORY --list` shows what it says.",
    Exit.USAGE,
)

_CLUSTER = "`pylog cluster health` shows brokers and partitions that are not well; try again when they are."
_CLIENT = "Look at the client's version and settings; the broker's log names the connection."
_AGAIN = "Try again; clients do so by themselves."

_ANSWERS: Mapping[ErrorCode, tuple[str, str]] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: (
        "The broker met something it did not expect.",
        "Its journal has the reason: `journalctl -u pylog-broker@ID`.",
    ),
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "The offset is below what retention kept, or above the end.",
        "`pylog topic describe TOPIC` shows the offsets that are there; `pylog group reset-offsets` moves a group.",
    ),
    ErrorCode.CORRUPT_MESSAGE: (
        "A batch does not match its checksum: it was damaged on its way, or on a disk.",
        "Send it again; on reading, run `pylog log verify DIR` on the leader's host.",
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "There is no topic or partition of this name, or the broker has not heard of it yet.",
        "`pylog topic list`",
    ),
    ErrorCode.INVALID_FETCH_SIZE: ("The client asked for a negative number of bytes.", _CLIENT),
    ErrorCode.LEADER_NOT_AVAILABLE: ("The partition is just getting a leader, or all its replicas are gone.", _CLUSTER),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ("The leader moved, and the client asked the old one.", _AGAIN),
    ErrorCode.REQUEST_TIMED_OUT: (
        "Not enough replicas answered in time; what was to be done may still happen. Or one request asked for too much"
        " work: more to unpack than a broker unpacks for one, or a search by time in batches whose headers name later"
        " times than their records have.",
        f"{_CLUSTER} If all are well, send fewer batches in a request (the error says `too much to unpack`), or search"
        " for an offset instead of a time.",
    ),
    ErrorCode.BROKER_NOT_AVAILABLE: ("The broker is not registered.", _CLUSTER),
    ErrorCode.REPLICA_NOT_AVAILABLE: ("This broker has no copy of the partition.", _AGAIN),
    ErrorCode.MESSAGE_TOO_LARGE: (
        "A batch is larger than the topic's max.message.bytes.",
        "Send smaller records or batches, or `pylog topic alter TOPIC --set max.message.bytes=N`.",
    ),
    ErrorCode.STALE_CONTROLLER_EPOCH: ("A controller that was replaced still gave orders.", _AGAIN),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "The note beside a committed offset is longer than offset.metadata.max.bytes.",
        "Commit a shorter note.",
    ),
    ErrorCode.NETWORK_EXCEPTION: ("A connection broke before the answer came.", _AGAIN),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ("The group's coordinator is still reading the group's offsets.", _AGAIN),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "The partition of __consumer_offsets that keeps this group has no leader.",
        _CLUSTER,
    ),
    ErrorCode.NOT_COORDINATOR: ("The group's coordinator moved to another broker.", _AGAIN),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "A topic's name has 1 to 249 letters, digits, dots, hyphens and underscores, and is neither . nor ...",
        "Choose such a name; the cluster's own topics cannot be written to.",
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: ("A batch is larger than a segment.", "Send smaller batches."),
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "Fewer replicas are in sync than min.insync.replicas wants; nothing was written.",
        _CLUSTER,
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "Replicas fell away after the leader had written; the record may be there or not.",
        _CLUSTER,
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: ("acks is neither 0, 1 nor all.", "Use one of these."),
    ErrorCode.ILLEGAL_GENERATION: ("The group went on without this member.", "The consumer joins again by itself."),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "A member supports no assignor that all others support.",
        "Give all members of the group the same partition.assignment.strategy.",
    ),
    ErrorCode.INVALID_GROUP_ID: ("A group's id must not be empty.", "Choose one."),
    ErrorCode.UNKNOWN_MEMBER_ID: (
        "The group does not know this member: its session ended, or the group has living members.",
        "A consumer joins again by itself; to move offsets, stop the group's consumers first.",
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms is outside group.min.session.timeout.ms and group.max.session.timeout.ms.",
        "Choose one inside; `pylog config describe broker ID` shows both.",
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: ("The group is assigning its partitions anew.", _AGAIN),
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ("The commit is too large to be written.", "Commit fewer offsets at once."),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (
        "This user may not do that with this topic.",
        "Ask the cluster's operator for the right.",
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (
        "This user may not do that with this group.",
        "Ask the cluster's operator for the right.",
    ),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (
        "This user may not do that with the cluster.",
        "Ask the cluster's operator for the right.",
    ),
    ErrorCode.INVALID_TIMESTAMP: (
        "A record's time is further from the broker's than message.timestamp limits allow.",
        "Check the clocks of both hosts, or the timestamps the producer sets.",
    ),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: (
        "The listener does not offer the SASL mechanism that the client asked for.",
        "Use one of the mechanisms in the message; `sasl.enabled.mechanisms` of the listener names them.",
    ),
    ErrorCode.ILLEGAL_SASL_STATE: (
        "A message of a login came at a wrong time, or on a listener without login.",
        "Compare `security.protocol` of the client with that of the listener.",
    ),
    ErrorCode.UNSUPPORTED_VERSION: ("The client speaks a version of the request that this release does not.", _CLIENT),
    ErrorCode.TOPIC_ALREADY_EXISTS: (
        "A topic of this name is there.",
        "`pylog topic describe TOPIC`; `pylog topic create --if-not-exists`.",
    ),
    ErrorCode.INVALID_PARTITIONS: (
        "The number of partitions is below 1, not above the present one, or more than one broker can take.",
        "Partitions can only become more; see docs/partition-counts.md.",
    ),
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "There are fewer brokers than replicas asked for.",
        "`pylog cluster info` shows how many brokers there are.",
    ),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: (
        "The list of replicas names a broker twice, none, or one that is not registered.",
        "`pylog cluster info` lists the brokers.",
    ),
    ErrorCode.INVALID_CONFIG: (
        "A setting is unknown, or its value is wrong.",
        "docs/settings.md lists names, types and defaults.",
    ),
    ErrorCode.NOT_CONTROLLER: ("The controller moved to another broker.", _AGAIN),
    ErrorCode.INVALID_REQUEST: ("The request contradicts itself, or asks the wrong broker.", _CLIENT),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ("The record format is too old for this request.", _CLIENT),
    ErrorCode.POLICY_VIOLATION: ("The cluster's rules forbid it; the message says which.", "Ask within the rules."),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "An idempotent producer's batches came with a gap: one before was lost or refused.",
        "Start the producer anew; look at its first error.",
    ),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ("The batch is there already.", "Nothing is lost; the producer goes on."),
    ErrorCode.INVALID_PRODUCER_EPOCH: ("A newer producer took over this id.", "Let only the newest run."),
    ErrorCode.INVALID_TXN_STATE: ("The transaction is not in a state that allows this.", _CLIENT),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "The transactional id is not known, or a newer producer has another producer id for it.",
        "Let the producer initialize its transactions again.",
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "The transaction's time-out is not positive, or above `transaction.max.timeout.ms`.",
        "Lower `transaction.timeout.ms` of the producer.",
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: ("The transaction before is still being ended.", _AGAIN),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: (
        "The broker coordinated transactions before, and another one does by now.",
        _AGAIN,
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "This user may not use this transactional id.",
        "Ask the cluster's operator for the right.",
    ),
    ErrorCode.SECURITY_DISABLED: (
        "The broker has no authorizer, so there are no ACLs to read or change.",
        "Set `authorizer.class.name`; docs/security.md says how.",
    ),
    ErrorCode.OPERATION_NOT_ATTEMPTED: (
        "Another part of the same request failed, so this part was not tried.",
        "Look at the other errors of the request.",
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: (
        "The leader's disk refused to read or write, or is full.",
        "`pylog cluster health`, then the broker's journal. Full: `pylog explain PylogDiskFull`.",
    ),
    ErrorCode.LOG_DIR_NOT_FOUND: ("The broker has no such data directory.", "`pylog config describe broker ID`"),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (
        "The user does not exist, or the password or token is wrong; the broker's log says which client it was.",
        "Check user, password and mechanism of the client.",
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: (
        "Everything this producer wrote is gone by retention, and with it what the broker knew of it.",
        _AGAIN,
    ),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: (
        "A partition of the topic is being moved.",
        "Wait, or call it off: `pylog partition reassign --cancel`.",
    ),
    ErrorCode.NON_EMPTY_GROUP: (
        "The group has members.",
        "Stop its consumers; `pylog group describe GROUP` shows them.",
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: ("There is no such group.", "`pylog group list`"),
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: ("The broker gave up this client's fetch session.", _AGAIN),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: ("Client and broker count their fetches differently.", _AGAIN),
    ErrorCode.LISTENER_NOT_FOUND: (
        "The leader does not listen where this client came in.",
        "Give all brokers the same listeners.",
    ),
    ErrorCode.TOPIC_DELETION_DISABLED: ("Deleting topics is switched off.", "Ask the cluster's operator."),
    ErrorCode.FENCED_LEADER_EPOCH: ("The client knows an older leader.", _AGAIN),
    ErrorCode.UNKNOWN_LEADER_EPOCH: ("The client knows a newer leader than the broker it asks.", _AGAIN),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: (
        "The codec is not known here, or not in this version of the request.",
        "Use gzip, snappy, lz4 or zstd.",
    ),
    ErrorCode.STALE_BROKER_EPOCH: ("A broker of an older registration spoke.", _AGAIN),
    ErrorCode.OFFSET_NOT_AVAILABLE: ("A new leader does not know yet how far consumers may read.", _AGAIN),
    ErrorCode.MEMBER_ID_REQUIRED: ("A member must join with the id it was given.", "Consumers do so by themselves."),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: (
        "The first of the replicas is not in sync, or not there.",
        "`pylog topic describe TOPIC`, then the broker.",
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "The group has group.max.size members.",
        "Run fewer, or let the operator raise group.max.size.",
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "Another member joined under the same group.instance.id.",
        "Give each static member an id of its own.",
    ),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: (
        "No replica that has everything is there.",
        "Bring one of the replicas in sync back; docs/guarantees.md.",
    ),
    ErrorCode.ELECTION_NOT_NEEDED: ("The preferred replica leads already.", "Nothing needs to be done."),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: (
        "This partition is not being moved.",
        "`pylog partition reassign --status` shows what is.",
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        "The group still reads the topic whose offsets should go.",
        "Stop its consumers first.",
    ),
    ErrorCode.INVALID_RECORD: (
        "A record contradicts the topic's rules, for instance has no key on a compacted topic.",
        "Send records that fit; `pylog topic describe TOPIC --format wide` shows the rules.",
    ),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ("A transaction over these offsets is not ended yet.", _AGAIN),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ("This client asks for more than its quota.", "Ask more slowly."),
    ErrorCode.PRODUCER_FENCED: ("A newer producer took over this transactional id.", "Let only the newest run."),
    ErrorCode.RESOURCE_NOT_FOUND: ("The user has no such credential.", "List the users with their mechanisms."),
    ErrorCode.DUPLICATE_RESOURCE: ("The request names one thing twice.", "Name it once."),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: (
        "The user's name is not allowed, or the iterations are not between 4096 and 16384.",
        "Choose another name, or iterations within the limits.",
    ),
    ErrorCode.INVALID_UPDATE_VERSION: ("Somebody else changed it first.", _AGAIN),
    ErrorCode.FEATURE_UPDATE_FAILED: (
        "A broker still runs the release before, which cannot read the new formats.",
        "Upgrade every broker, then run `pylog cluster finalize` again.",
    ),
    ErrorCode.UNKNOWN_TOPIC_ID: ("The topic was deleted, or made anew under the same name.", _AGAIN),
    ErrorCode.INCONSISTENT_TOPIC_ID: ("The topic was made anew under the same name.", _AGAIN),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        "No producer uses this transactional id, or it expired.",
        "List the ids that there are.",
    ),
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: ("The client's fetch session names topics in another way.", _AGAIN),
    ErrorCode.TRANSACTION_ABORTABLE: (
        "The partition is not part of the producer's open transaction, which was aborted meanwhile.",
        "Abort the transaction and begin a new one.",
    ),
}


def _answer(code: ErrorCode, cause: str, remedy: str) -> Fault:
    words = code.name.lower().removesuffix("_exception").replace("_", " ")
    return Fault(fault_number(code), f"the cluster refused: {words}", cause, remedy)


_OWN = tuple(one for one in list(globals().values()) if isinstance(one, Fault))
CATALOGUE: Mapping[int, Fault] = {
    one.number: one for one in (*_OWN, *(_answer(code, *texts) for code, texts in _ANSWERS.items()))
}
"""Every fault by its number."""
assert len(CATALOGUE) == len(_OWN) + len(_ANSWERS), "two faults share a number"


def code_of(error: PylogError) -> str:
    """Return the code of what a part of pylog raised."""
    return CATALOGUE[error.fault].code
