"""What holds for every command: a file, then the environment, then flags, each stronger than the one before.

file => bootstrap: string, zookeeper: string, format: string, timeout_s: number,     (YAML)
        properties: {librdkafka name: value}, security: {key of pylog.client.security.SECURITY_KEYS: value}
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pylog import faults
from pylog.cli.failure import Failure

_WANTED: Mapping[str, type | tuple[type, ...]] = {
    "bootstrap": str,
    "zookeeper": str,
    "format": str,
    "timeout_s": (int, float),
    "properties": dict,
    "security": dict,
}
_FORMATS = ("text", "wide", "json", "yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a command starts from; flags replace single values."""

    bootstrap: str = "localhost:9092"
    zookeeper: str = "localhost:2181"
    format: str = "text"
    timeout_s: float = 10.0
    properties: Mapping[str, str] = field(default_factory=dict)
    security: Mapping[str, str] = field(default_factory=dict)
    """The block as it stands, for programs that hand it on; `properties` has what it means."""


def load_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the settings of file and environment.

    Raises:
        Failure: with exit code 2, naming file and line, or the variable.
    """
    return _from_environment(_from_file(environment), environment)


def _from_file(environment: Mapping[str, str]) -> Settings:
    named = environment.get("PYLOG_CONFIG")
    home = Path(environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "/")) / ".config")
    path = Path(named) if named else home / "pylog" / "config.yml"
    try:
        text = path.read_text()
    except FileNotFoundError:
        if named:
            raise _wrong(f"PYLOG_CONFIG={path}", "no such file", "a file, or the variable unset") from None
        return Settings()
    except OSError as error:
        raise _wrong(str(path), error.strerror or "unreadable", "a file that can be read") from error
    return _parse(path, text)


def _parse(path: Path, text: str) -> Settings:
    # Only here, because importing YAML takes a third of what `pylog --help` may.
    import yaml

    try:
        node: Any = yaml.compose(text, Loader=yaml.SafeLoader)
        values: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _wrong(str(path), str(error), "YAML") from error
    if values is None:
        return Settings()
    if not isinstance(values, dict):
        raise _wrong(f"{path}:1", repr(values), "a mapping of settings")
    lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
    for name, value in values.items():
        where = f"{path}:{lines.get(name, 1)}"
        if name not in _WANTED:
            raise _wrong(where, f"unknown key {name!r}", "one of " + ", ".join(_WANTED))
        if not isinstance(value, _WANTED[name]) or isinstance(value, bool):
            raise _wrong(where, f"{name}: {value!r}", f"{name} in the shape of the manual")
        _check_value(where, name, value)
    properties = _strings(values.get("properties", {}))
    block = _strings(values.pop("security", {}))
    if block:
        from pylog.client.security import security_properties
        from pylog.errors import ConfigError

        try:
            properties |= security_properties(block, properties)
        except ConfigError as error:
            raise _wrong(f"{path}:{lines['security']}", str(error), "the keys of the page on security") from error
    return replace(Settings(), **(values | {"properties": properties, "security": block}))


def _from_environment(settings: Settings, environment: Mapping[str, str]) -> Settings:
    found: dict[str, Any] = {}
    if bootstrap := environment.get("PYLOG_BOOTSTRAP"):
        found["bootstrap"] = bootstrap
    if zookeeper := environment.get("PYLOG_ZOOKEEPER"):
        found["zookeeper"] = zookeeper
    if output := environment.get("PYLOG_FORMAT"):
        _check_value("PYLOG_FORMAT", "format", output)
        found["format"] = output
    if timeout := environment.get("PYLOG_TIMEOUT"):
        try:
            found["timeout_s"] = float(timeout)
        except ValueError:
            raise _wrong("PYLOG_TIMEOUT", timeout, "seconds") from None
        _check_value("PYLOG_TIMEOUT", "timeout_s", found["timeout_s"])
    return replace(settings, **found)


def _check_value(where: str, name: str, value: object) -> None:
    if name == "format" and value not in _FORMATS:
        raise _wrong(where, str(value), "one of " + ", ".join(_FORMATS))
    if name == "timeout_s" and isinstance(value, int | float) and not 0 < value <= 3600:
        raise _wrong(where, f"{value} s", "more than 0, at most 3600 s")


def _strings(values: Mapping[object, object]) -> dict[str, str]:
    return {str(name): str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()}


def _wrong(where: str, found: str, wanted: str) -> Failure:
    return Failure(faults.SETTING_WRONG, where=where, found=found, wanted=wanted)
