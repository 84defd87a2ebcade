"""Options that many commands share, and the connection they add up to."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from pylog import faults
from pylog.cli.failure import Failure, failure_of
from pylog.cli.settings import Settings, load_settings
from pylog.errors import PylogError

if TYPE_CHECKING:
    from pylog.client.connection import Connection

_COMPLETION_TIMEOUT_S = 1.0

_SECRETS = (".password", ".secret")
"""Ends of names of properties that nobody else may read."""

_MORE_SECRETS = (".key.pem", ".passphrase", "sasl.oauthbearer.config")
"""How names of other properties end that hold a secret, which is no password of one line."""

_FILE = ".file"
"""Behind such a name: the file whose first line is the secret."""


class Format(StrEnum):
    """How a listing is written."""

    TEXT = "text"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Codec(StrEnum):
    """How batches are compressed."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def _topics(incomplete: str) -> list[str]:
    from pylog.client.admin.cluster import Admin

    return _names(incomplete, lambda cluster: Admin(cluster).cluster().topics)


def _groups(incomplete: str) -> list[str]:
    from pylog.client.admin.groups import GroupAdmin

    return _names(incomplete, lambda cluster: [one.group_id for one in GroupAdmin(cluster).groups()])


def _names(incomplete: str, ask: Callable[["Connection"], Iterable[str]]) -> list[str]:
    """Return what a shell may complete to; a cluster that cannot be asked at once has nothing to say."""
    try:
        found = replace(load_settings(), timeout_s=_COMPLETION_TIMEOUT_S)
        return [name for name in ask(connection(found)) if name.startswith(incomplete)]
    except (PylogError, Failure):
        return []


Topic: TypeAlias = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=_topics)]
Topics: TypeAlias = Annotated[list[str], typer.Argument(metavar="TOPIC..", autocompletion=_topics)]
Group: TypeAlias = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=_groups)]
Bootstrap: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT,..", help="Brokers to ask first [PYLOG_BOOTSTRAP; localhost:9092]."
    ),
]
Timeout: TypeAlias = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", min=0.001, max=3600, help="For one request [PYLOG_TIMEOUT; 10]."),
]
Properties: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--property", "-X", metavar="NAME=VALUE", help="A librdkafka property, or sasl.password.file=FILE; repeatable."
    ),
]
Set: TypeAlias = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting by Kafka's name; repeatable.")
]
Delete: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--delete", metavar="NAME", help="Back to the brokers' value, or the default; repeatable."),
]
FormatOption: TypeAlias = Annotated[
    Format | None, typer.Option("--format", help="text, wide, json or yaml [PYLOG_FORMAT; text].")
]


def new_app(help: str = "") -> typer.Typer:
    """Return an empty verb in the style all verbs have; *help* only where it has sub-commands."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        no_args_is_help=bool(help),
        help=help or None,
        suggest_commands=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    if help:
        # Without a callback typer folds a group of one command into that command.
        app.callback()(_group)
    return app


def _group() -> None:
    pass


def settings(bootstrap: str | None, timeout: float | None, properties: list[str] | None = None) -> Settings:
    """Return the settings with the flags on top."""
    found = load_settings()
    given = _secrets_read(assignments("--property", properties))
    _cover(properties or [])
    return replace(
        found,
        bootstrap=bootstrap or found.bootstrap,
        timeout_s=timeout or found.timeout_s,
        properties={**found.properties, **given},
    )


def _secrets_read(given: dict[str, str]) -> dict[str, str]:
    """Read the secrets that files hold.

    Raises:
        ConfigError: a file is missing, empty, or readable by everybody.
        Failure: with exit code 2, if a secret is given twice.
    """
    properties = {name: text for name, text in given.items() if not _is_secret_file(name)}
    for name, file in given.items():
        secret = name.removesuffix(_FILE)
        if not _is_secret_file(name):
            continue
        if secret in given:
            raise Failure(
                faults.OPTIONS_CONFLICT, where="--property", found=f"{secret} and {name}", wanted="one of them"
            )
        from pylog.security.password_file import read_password

        properties[secret] = read_password(Path(file), name)
    return properties


def _cover(arguments: list[str]) -> None:
    """Cover the secrets that stand on the command line, each time that one is given, and tell the user."""
    told: dict[str, bool] = {}
    for argument in arguments:
        name, _, secret = argument.partition("=")
        if name.endswith((*_SECRETS, *_MORE_SECRETS)):
            from pylog.cli.arguments import hide

            told[name] = hide(name, secret) and told.get(name, True)
    for name, is_covered in told.items():
        from pylog.cli.output import note  # which needs this module

        way = f"{name}{_FILE}=FILE, or a block security: with password_file in the file of settings,"
        if not name.endswith(_SECRETS):
            way = f"{name} under properties: in the file of settings"
        seen = "was" if is_covered else "is"
        note(
            f"{name} {seen} on the command line, where everybody on this host can read it: {way} "
            "keeps it out of the list of processes"
        )


def _is_secret_file(name: str) -> bool:
    return name.endswith(_FILE) and name.removesuffix(_FILE).endswith(_SECRETS)


def connection(found: Settings) -> "Connection":
    """Return how to reach the cluster that the settings name."""
    from pylog.client.connection import Connection

    return Connection(bootstrap=found.bootstrap, timeout_s=found.timeout_s, properties=found.properties)


@contextmanager
def told_to_the_user(bootstrap: str) -> Iterator[None]:
    """Turn what a part of pylog raises into a failure that names the cluster."""
    try:
        yield
    except PylogError as error:
        raise failure_of(error, bootstrap) from error


def format_of(flag: Format | None) -> Format:
    """Return the output format: the flag, or what file and environment say."""
    return flag or Format(load_settings().format)


def assignments(option: str, texts: list[str] | None) -> dict[str, str]:
    """Split ``name=value`` texts.

    Raises:
        Failure: with exit code 2, if one has no ``=`` or no name.
    """
    found = {}
    for text in texts or []:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise Failure(faults.OPTION_WRONG, where=option, found=text, wanted="name=value")
        found[name] = value
    return found
