"""What `pylog.client` offers, and what it costs to ask for it."""

import subprocess
import sys

import pytest

import pylog.client

HEAVY = {"confluent_kafka", "kazoo", "fastavro"}


@pytest.mark.parametrize("name", pylog.client.__all__)
def test_each_public_name_is_there(name: str) -> None:
    assert getattr(pylog.client, name).__name__ == name


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        pylog.client.Nothing  # noqa: B018


@pytest.mark.parametrize(
    "module",
    [
        "pylog.client",
        "pylog.client.raw",
        "pylog.client.message",
        "pylog.client.paper.rebalance",
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_used(module: str) -> None:
    code = f"import sys, {module}; print(*({HEAVY!r} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == ""
