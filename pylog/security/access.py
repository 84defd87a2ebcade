"""Users and their rights as code: what somebody wants of the users of a cluster, as a document.

Pure: a document comes in, users, names and bindings go out.  ``pylog user apply`` carries them out.

document => {"users": [user], "absent": [name]}                       (both keys may be left out)
user     => {"name": text, "password": text, "acls": [rule]}
rule     => {"resource": "topic" | "group" | "transactional_id" | "cluster", "name": text,
             "pattern": "literal" | "prefixed", "operations": [text], "permission": "allow" | "deny", "hosts": [text]}

A user without a password keeps the credentials that are there, or has none, as with a client certificate.  With `acls`
the user has exactly these and no others; without, those that are there stay.  `absent` users lose both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pylog.errors import ApiError, ConfigError
from pylog.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)
from pylog.security.exchange import LoginFailed, check_name
from pylog.security.principal import USER

EnumT = TypeVar("EnumT", ResourceType, PatternType, Operation, Permission)

_USER_KEYS: Mapping[str, type] = {"name": str, "password": str, "acls": list}
_RULE_KEYS: Mapping[str, type] = {
    "resource": str, "name": str, "pattern": str, "operations": list, "permission": str, "hosts": list,
}  # fmt: skip
_RESOURCES = ("topic", "group", "transactional_id", "cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedUser:
    """A user as the document has it.

    Attributes:
        password: None leaves the credentials as they are; no part of the representation.
        acls: all bindings of the user; None leaves them as they are.
    """

    name: str
    password: str | None = field(default=None, repr=False)
    acls: frozenset[Binding] | None = None

    @property
    def principal(self) -> str:
        """The name as ACLs have it."""
        return f"{USER}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """A whole document.

    Attributes:
        users: each name once.
        absent: names of users that must not be.
    """

    users: tuple[WantedUser, ...] = ()
    absent: tuple[str, ...] = ()


def read_access(document: object) -> Access:
    """Return what *document* says.

    Raises:
        ConfigError: it is none; the message names the place and never shows a password.
    """
    top = _mapping(document, {"users": list, "absent": list}, "the document")
    users = tuple(_user(entry, f"users[{number}]") for number, entry in enumerate(top.get("users", [])))
    absent = tuple(_name(name, f"absent[{number}]") for number, name in enumerate(top.get("absent", [])))
    names = [*(user.name for user in users), *absent]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"user {repeated[0]!r} must be named once, in users or in absent")
    return Access(users=users, absent=absent)


def _user(entry: object, where: str) -> WantedUser:
    given = _mapping(entry, _USER_KEYS, where)
    name = _name(given.get("name"), f"{where}.name")
    password: str | None = given.get("password")
    if password == "":
        raise ConfigError(f"{where}.password: the password of user {name!r} must not be empty")
    rules: Sequence[object] | None = given.get("acls")
    if rules is None:
        return WantedUser(name=name, password=password)
    bindings = (
        binding
        for number, rule in enumerate(rules)
        for binding in _bindings(rule, f"{USER}:{name}", f"{where}.acls[{number}]")
    )
    return WantedUser(name=name, password=password, acls=frozenset(bindings))


def _name(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: a user's name must be text, got {value!r}")
    try:
        name = check_name(value)
    except LoginFailed as error:
        raise ConfigError(f"{where}: {error}") from None
    if not name.isascii():
        raise ConfigError(f"{where}: user name {name!r}: SCRAM takes ASCII only")
    return name


def _bindings(rule: object, principal: str, where: str) -> Iterator[Binding]:
    given = _mapping(rule, _RULE_KEYS, where)
    resource = given.get("resource", "topic")
    if resource not in _RESOURCES:
        raise ConfigError(f"{where}.resource: {resource!r} must be one of {', '.join(_RESOURCES)}")
    kind = ResourceType[resource.upper()]
    name = given.get("name", CLUSTER_NAME if kind is ResourceType.CLUSTER else None)
    if name is None:
        raise ConfigError(f"{where}.name: the name of the {resource} is missing; * stands for all")
    pattern = Pattern(kind, _one_of(PatternType, given.get("pattern", "literal"), f"{where}.pattern"), name)
    permission = _one_of(Permission, given.get("permission", "allow"), f"{where}.permission")
    operations = given.get("operations", [])
    if not operations:
        raise ConfigError(f"{where}.operations: at least one operation is needed, such as Read; All stands for each")
    for text in operations:
        operation = _one_of(Operation, text, f"{where}.operations")
        for host in given.get("hosts", [WILDCARD]):
            try:
                yield check_binding(Binding(pattern, Entry(principal, str(host), operation, permission)))
            except ApiError as error:
                raise ConfigError(f"{where}: {error}") from None


def _one_of(kind: type[EnumT], text: object, where: str) -> EnumT:
    wanted = str(text).replace("-", "").replace("_", "").lower()
    for one in kind:
        if one.name.replace("_", "").lower() == wanted and one.name not in ("ANY", "MATCH"):
            return one
    names = ", ".join(one.name.lower() for one in kind if one.name not in ("ANY", "MATCH"))
    raise ConfigError(f"{where}: {text!r} must be one of {names}")


def _mapping(value: object, keys: Mapping[str, type], where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} must be a mapping, got {type(value).__name__}")
    for key, one in value.items():
        if key not in keys:
            raise ConfigError(f"{where}: unknown key {key!r}; there are {', '.join(keys)}")
        if one is not None and not isinstance(one, keys[key]):
            # What was given is not shown: it may be a password that looks like a number.
            raise ConfigError(f"{where}.{key} must be of type {keys[key].__name__}, got {type(one).__name__}")
    return {key: one for key, one in value.items() if one is not None}
