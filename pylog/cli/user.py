"""`pylog user`: who may log in, written straight into the store of a broker's configuration file.

For the first users, and for whoever is locked out: it needs the file and no login.  Later ones can also be made over
the wire, by whatever speaks AlterUserScramCredentials.
"""

import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pylog import faults
from pylog.cli.document import read_document
from pylog.cli.failure import Failure
from pylog.cli.options import FormatOption, format_of, new_app
from pylog.cli.output import Column, done, emit, note, table
from pylog.cli.progress import progress
from pylog.cli.store import connected_store

if TYPE_CHECKING:
    from pylog.store.base import Store

app = new_app("Give users passwords, straight in the store; see and delete users.")

Config = Annotated[Path, typer.Option(metavar="FILE", help="Configuration file of a broker, which names the store.")]

_MAX_PASSWORD_FILE = 4096


@app.command(
    "set", epilog="Example: pylog user set alice --config /etc/pylog/broker-1.yml --password-file /root/alice.password"
)
def set_user(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    config: Config,
    password_file: Annotated[str, typer.Option(metavar="FILE", help="Its first line is the password; - for stdin.")],
    iterations: Annotated[int, typer.Option(min=4096, max=16384, metavar="N", help="Of PBKDF2.")] = 4096,
    format: FormatOption = None,
) -> None:
    """Give a user a password for SCRAM and PLAIN; nothing changes if it is the user's password already."""
    from pylog.store.users import set_password

    password = _password(password_file)
    with _store(config) as store:
        is_changed = set_password(store, name, password, iterations=iterations)
    text = f"password of {name} set" if is_changed else f"{name} has this password already"
    done(format_of(format), {"user": name, "changed": is_changed}, text)


@app.command("delete", epilog="Example: pylog user delete alice --config /etc/pylog/broker-1.yml")
def delete(name: Annotated[str, typer.Argument(metavar="NAME")], config: Config, format: FormatOption = None) -> None:
    """Remove a user's credentials; connections that are logged in last until their session ends."""
    from pylog.store.users import delete_user

    with _store(config) as store:
        is_changed = delete_user(store, name)
    text = f"user {name} deleted" if is_changed else f"user {name} has no credentials"
    done(format_of(format), {"user": name, "changed": is_changed}, text)


@app.command("list", epilog="Example: pylog user list --config /etc/pylog/broker-1.yml")
def list_users(config: Config, format: FormatOption = None) -> None:
    """List users that can log in, with the mechanisms of their credentials."""
    from pylog.store.tree import ClusterTree

    with _store(config) as store:
        store.ensure("/config/users")
        users = ClusterTree(store).scram_credentials()
    rows = [{"user": user, "mechanisms": sorted(found)} for user, found in sorted(users.items())]
    columns = [Column("user"), Column("mechanisms")]
    emit(format_of(format), rows, lambda is_wide: table(rows, columns, is_wide))


@app.command(epilog="Example: pylog user apply users.yml --config /etc/pylog/broker-1.yml --dry-run")
def apply(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The document, YAML or JSON; - for stdin.")],
    config: Config,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    format: FormatOption = None,
) -> None:
    """Make users and their ACLs what a document says; users that it does not name are left alone.

    A user with acls has exactly those afterwards. Users in absent lose credentials and ACLs.
    """
    from pylog.security.access import read_access
    from pylog.store.access import apply_access, compare_access

    wanted = read_document(file, read_access)
    with progress("comparing users" if dry_run else "changing users") as bar, _store(config) as store:
        found = compare_access(store, wanted) if dry_run else apply_access(store, wanted, bar.at)
    rows = [one._asdict() for one in found]
    columns = [Column(name) for name in ("user", "what", "found", "wanted")]
    data = {"dry_run": dry_run, "changes": rows}
    emit(format_of(format), data, lambda is_wide: table(rows, columns, is_wide) if rows else "")
    count = len({one.user for one in found})
    note(f"{count} users {'would change' if dry_run else 'changed'}" if count else "every user is as wanted")


def _store(config: Path) -> AbstractContextManager["Store"]:
    from pylog.config import load_broker_config

    return connected_store(load_broker_config(config))


def _password(file: str) -> str:
    """Return the first line of *file*; a password as an argument would stand in the list of processes."""
    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text()[:_MAX_PASSWORD_FILE]
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(faults.FILE_UNREADABLE, where=file, found=str(error)) from None
    return text.partition("\n")[0]
