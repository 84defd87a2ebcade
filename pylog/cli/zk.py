"""`pylog zk`: what a cluster keeps in ZooKeeper."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pylog import faults
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, Timeout, format_of, new_app, settings
from pylog.cli.output import emit, note

if TYPE_CHECKING:
    from kazoo.client import KazooClient

app = new_app("Read what the cluster keeps in ZooKeeper.")

_MAX_NODES = 10_000
"""A cluster of 100,000 partitions has more; --depth and PATH choose among them."""


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
    timeout: Timeout = None,
    format: FormatOption = None,
) -> None:
    """Show nodes, their data and children; nothing is ever written. Wide: versions and owners too."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    found = settings(None, timeout)
    hosts = zookeeper or found.zookeeper
    if not path.startswith("/") or (path.endswith("/") and path != "/") or "//" in path:
        raise Failure(faults.OPTION_WRONG, where="PATH", found=path, wanted="a path as /brokers/ids")
    client = KazooClient(hosts, timeout=found.timeout_s)
    try:
        client.start(found.timeout_s)
        nodes = list(_nodes(client, path, depth))
    except (KazooTimeoutError, KazooException, OSError) as error:
        raise Failure(
            faults.STORE_UNREACHABLE,
            where=hosts,
            found=str(error) or type(error).__name__,
            wanted=f"an answer in {found.timeout_s:g} s",
        ) from error
    finally:
        client.stop()
        client.close()
    if not nodes:
        raise Failure(faults.NO_SUCH_NODE, where=f"{hosts}{path}", next="pylog zk show /")
    emit(format_of(format), nodes, lambda is_wide: "".join(_line(node, is_wide) for node in nodes))
    if len(nodes) == _MAX_NODES:
        note(f"only the first {_MAX_NODES} nodes are shown; name a longer PATH")


def _nodes(client: "KazooClient", path: str, depth: int) -> Iterator[dict[str, Any]]:
    """Yield the node and those below it, parents first; a node that goes meanwhile is left out."""
    from kazoo.exceptions import NoNodeError

    left = [(path, depth)]
    shown = 0
    while left and shown < _MAX_NODES:
        at, levels = left.pop()
        try:
            data, stat = client.get(at)
            children = sorted(client.get_children(at)) if stat.numChildren else []
        except NoNodeError:
            continue
        shown += 1
        yield {
            "path": at,
            "data": _shown(data),
            "version": stat.version,
            "ephemeral": bool(stat.ephemeralOwner),
            "owner": f"0x{stat.ephemeralOwner:x}" if stat.ephemeralOwner else None,
            "children": len(children),
        }
        if levels:
            left += [(f"{at.rstrip('/')}/{child}", levels - 1) for child in reversed(children)]


def _shown(data: bytes) -> Any:  # noqa: ANN401  # whatever JSON may hold
    """Return what a node holds: JSON as it is, other text as text, bytes that are no text escaped."""
    text = data.decode(errors="backslashreplace")
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _line(node: dict[str, Any], is_wide: bool) -> str:
    words = [node["path"]]
    if node["data"] is not None:
        words.append(json.dumps(node["data"], ensure_ascii=False))
    if node["ephemeral"]:
        words.append(f"(ephemeral, session {node['owner']})" if is_wide else "(ephemeral)")
    if is_wide:
        words.append(f"version {node['version']}, {node['children']} children")
    return "  ".join(words) + "\n"
