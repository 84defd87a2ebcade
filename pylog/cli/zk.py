"""`pylog zk`: what a cluster keeps in ZooKeeper, and who may read and write it there."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, Timeout, format_of, new_app, settings
from pylog.cli.output import done, emit, note
from pylog.cli.progress import Bar, progress
from pylog.errors import ConfigError
from pylog.security.password_file import read_password
from pylog.security.scram import SCRAM_MECHANISMS
from pylog.store.base import NotConnected

if TYPE_CHECKING:
    from pylog.store.base import Store
    from pylog.store.tree_rights import Outcome
    from pylog.store.zookeeper import ZooKeeperStore
    from pylog.store.zookeeper_security import ZooKeeperSecurity

app = new_app("See what the cluster keeps in ZooKeeper, and close or open it.")

Config = Annotated[
    Path, typer.Option(metavar="FILE", help="Configuration file of a broker, which names servers and identity.")
]

_MAX_NODES = 10_000
"""A cluster of 100,000 partitions has more; --depth and PATH choose among them."""

_USERS = "/config/users/"
_HIDDEN = "***"


@app.command(epilog="Example: pylog zk show /brokers/ids --depth 1 --zookeeper zk1:2181,zk2:2181")
def show(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="Where to begin.")] = "/",
    depth: Annotated[int, typer.Option(min=0, max=100, metavar="N", help="Levels below it.")] = 1,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT,..",
            help="Its servers; /PATH behind them is a root [PYLOG_ZOOKEEPER; localhost:2181].",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Configuration file of a broker, for its servers and identity."),
    ] = None,
    timeout: Timeout = None,
    format: FormatOption = None,
) -> None:
    """Show nodes, their data and children; nothing is ever written. Wide: versions and owners too.

    Credentials of users are not shown.
    """
    from pylog.store.zookeeper import ZooKeeperStore
    from pylog.store.zookeeper_security import PLAIN

    found = settings(None, timeout)
    if not path.startswith("/") or (path.endswith("/") and path != "/") or "//" in path:
        raise Failure(faults.OPTION_WRONG, where="PATH", found=path, wanted="a path as /brokers/ids")
    hosts, security = (found.zookeeper, PLAIN) if config is None else _servers_of(config)
    store = ZooKeeperStore(zookeeper or hosts, security=security, makes_root=False)
    hosts = zookeeper or hosts
    with progress("reading nodes") as bar, closing(store):
        try:
            store.connect(found.timeout_s)
            nodes = list(_nodes(store, path, depth, bar))
        except NotConnected as error:
            raise Failure(
                faults.STORE_UNREACHABLE,
                where=hosts,
                found=str(error),
                wanted=f"an answer in {found.timeout_s:g} s",
            ) from error
    if not nodes:
        raise Failure(faults.NO_SUCH_NODE, where=f"{hosts}{path}", next="pylog zk show /")
    emit(format_of(format), nodes, lambda is_wide: "".join(_line(node, is_wide) for node in nodes))
    if len(nodes) == _MAX_NODES:
        note(f"only the first {_MAX_NODES} nodes are shown; name a longer PATH")


@app.command(epilog="Example: pylog zk secure --config /etc/pylog/broker-1.yml")
def secure(
    config: Config,
    unless_closed: Annotated[
        bool,
        typer.Option("--unless-closed", help="Look at the root alone, which is closed last, and do nothing if it is."),
    ] = False,
    format: FormatOption = None,
) -> None:
    """Give every node of the cluster the ACL that brokers with this file make it with.

    Can be repeated and interrupted: nodes that have their ACL already are left alone. All brokers must work with the
    same identity before, and with zookeeper.set.acl.
    """
    from pylog.store.tree_rights import Outcome, is_closed, secure_tree

    with progress("closing nodes") as bar, _session(config) as (store, security):
        rights = security.rights
        if rights is None:
            raise Failure(
                faults.CONFIG_WRONG,
                where=str(config),
                found="zookeeper.set.acl: false",
                wanted="zookeeper.set.acl: true",
            )
        if unless_closed and is_closed(store, rights):
            outcome = Outcome(seen=1)
        else:
            outcome = secure_tree(store, rights, lambda path: note(f"closed {path}"), bar.at)
    _tell(outcome, "closed", format)
    if outcome.foreign:
        note(
            f"the root stays open, since others keep {', '.join(outcome.foreign)} there: whoever reaches ZooKeeper can "
            "delete /controller; give the cluster a root of its own (hosts: HOST:PORT/PATH), or the root an ACL by hand"
        )


@app.command("open", epilog="Example: pylog zk open --config /etc/pylog/broker-1.yml --yes")
def open_(
    config: Config,
    yes: Annotated[
        bool, typer.Option("--yes", help="Let everybody read passwords' keys and write everything.")
    ] = False,
    format: FormatOption = None,
) -> None:
    """Let everybody who reaches ZooKeeper read and write every node of the cluster again.

    This is the way back from `pylog zk secure`, for instance to change identities.
    """
    from pylog.store.tree_rights import open_tree

    if not yes:
        raise Failure(faults.NOT_CONFIRMED, where=str(config), wanted="--yes, since this opens the tree to everybody")
    with progress("opening nodes") as bar, _session(config) as (store, _):
        outcome = open_tree(store, lambda path: note(f"opened {path}"), bar.at)
    _tell(outcome, "opened", format)


@app.command(epilog="Example: pylog zk identity reader --password-file /root/reader.password")
def identity(
    name: Annotated[str, typer.Argument(metavar="USER")],
    password_file: Annotated[Path, typer.Option(metavar="FILE", help="Its first line is the password.")],
    format: FormatOption = None,
) -> None:
    """Print a user's identity as zookeeper.acl.owners and zookeeper.acl.consumers take it."""
    from pylog.store.node_rights import digest_identity

    if not name or ":" in name:
        raise Failure(faults.OPTION_WRONG, where="USER", found=repr(name), wanted="a name without a colon")
    try:
        found = digest_identity(name, read_password(password_file, "--password-file"))
    except ConfigError as error:
        raise Failure(faults.OPTION_WRONG, where="--password-file", found=str(error)) from None
    text = f"{found.scheme}:{found.id}"
    emit(format_of(format), {"identity": text}, lambda is_wide: f"{text}\n")


@contextmanager
def _session(config: Path) -> "Iterator[tuple[ZooKeeperStore, ZooKeeperSecurity]]":
    """Connect with the servers and the identity of a broker's file."""
    from pylog.store.zookeeper import ZooKeeperStore

    hosts, security = _servers_of(config)
    with closing(ZooKeeperStore(hosts, security=security, makes_root=False)) as store:
        store.connect()
        yield store, security


def _servers_of(config: Path) -> "tuple[str, ZooKeeperSecurity]":
    from pylog.config import load_broker_config

    store = load_broker_config(config).store
    if store.kind != "zookeeper":
        raise Failure(faults.CONFIG_WRONG, where=str(config), found=f"store.kind: {store.kind}", wanted="zookeeper")
    return store.hosts, store.security


def _tell(outcome: "Outcome", verb: str, format: FormatOption) -> None:
    data = {"nodes": outcome.seen, "changed": outcome.changed, "foreign": outcome.foreign}
    done(format_of(format), data, f"{verb} {len(outcome.changed)} of {outcome.seen} nodes")


def _nodes(store: "Store", path: str, depth: int, bar: Bar) -> Iterator[dict[str, Any]]:
    """Yield the node and those below it, parents first; a node that goes meanwhile is left out."""
    left = [(path, depth)]
    shown = 0
    while left and shown < _MAX_NODES:
        at, levels = left.pop()
        [node] = store.get_many([at])
        if node is None:
            continue
        data, stat = node
        [children] = store.children_many([at])
        shown += 1
        yield {
            "path": at,
            "data": _shown(at, data),
            "version": stat.version,
            "ephemeral": bool(stat.ephemeral_owner),
            "owner": f"0x{stat.ephemeral_owner:x}" if stat.ephemeral_owner else None,
            "children": len(children),
        }
        if levels:
            left += [(f"{at.rstrip('/')}/{child}", levels - 1) for child in reversed(children)]
        bar.at(shown, min(shown + len(left), _MAX_NODES))


def _shown(path: str, data: bytes) -> Any:  # noqa: ANN401  # whatever JSON may hold
    """Return what a node holds: JSON as it is, other text as text, bytes that are no text escaped; no credentials."""
    text = data.decode(errors="backslashreplace")
    try:
        found: Any = json.loads(text) if text else None
    except ValueError:
        found = text
    return _without_credentials(found) if path.startswith(_USERS) else found


def _without_credentials(found: Any) -> Any:  # noqa: ANN401
    if found is None:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("config", {}), dict):
        return _HIDDEN  # not as brokers write it, so nobody knows where in it a credential is
    config = {name: _HIDDEN if name in SCRAM_MECHANISMS else text for name, text in found.get("config", {}).items()}
    return found | ({"config": config} if "config" in found else {})


def _line(node: dict[str, Any], is_wide: bool) -> str:
    words = [node["path"]]
    if node["data"] is not None:
        words.append(json.dumps(node["data"], ensure_ascii=False))
    if node["ephemeral"]:
        words.append(f"(ephemeral, session {node['owner']})" if is_wide else "(ephemeral)")
    if is_wide:
        words.append(f"version {node['version']}, {node['children']} children")
    return "  ".join(words) + "\n"
