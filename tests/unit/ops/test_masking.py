"""Planted secrets: whatever form they have, a support bundle has none of them."""

import io
import json
import tarfile

import pytest

from pylog.ops.bundle import archive, members
from pylog.ops.masking import MASK, mask, secrets_of, values

PLANTED = "Zq7planted9secret"


@pytest.mark.parametrize(
    "text",
    [
        f"password={PLANTED}",
        f"password: {PLANTED}",
        f'"ssl.key.password": "{PLANTED}"',
        f"sasl.jaas.config=org.X required username=\"u\" password='{PLANTED}';",
        f"PYLOG_TOKEN={PLANTED} pylog topic list",
        f"https://user:{PLANTED}@index.example/simple",
        f"Authorization: Bearer {PLANTED}",
        f"authorization: basic {PLANTED}",
        f"api_key = {PLANTED}",
        f"aws_secret_access_key={PLANTED}",
        f"SCRAM-SHA-256=salt={PLANTED},stored_key={PLANTED},server_key={PLANTED},iterations=4096",
        f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{PLANTED}",
    ],
)
def test_what_looks_like_a_secret_is_masked_unlisted(text: str) -> None:
    assert PLANTED not in mask(text)
    assert MASK in mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "cluster_secret_file: /etc/pylog/cluster.secret",
        "partition=clicks-0 leader_epoch=7 offset=12",
        "data_dir: /var/lib/pylog/disk1/broker-1",
        "tokens 5",
        "http://localhost:9092/path",
    ],
)
def test_what_is_none_stays_readable(text: str) -> None:
    assert mask(text) == text


def test_known_values_go_wherever_they_stand() -> None:
    assert mask(f"argv: run --with {PLANTED}x", [PLANTED, f"{PLANTED}x"]) == f"argv: run --with {MASK}"


def test_an_inventory_names_its_secrets() -> None:
    variables = {
        "pylog_cluster_secret": f"{PLANTED}\n",
        "users": [{"name": "ada", "password": "correct horse"}],
        "vault": {"registry_token": "t0ken-0123"},
        "cluster_secret_file": "/etc/pylog/cluster.secret",
        "pin_secret": "123",
        "port": 9092,
    }
    assert secrets_of([variables]) == {PLANTED, "correct horse", "t0ken-0123"}
    assert values([f"{PLANTED}\n", ""]) == {PLANTED}


def test_a_bundle_has_none_of_the_planted() -> None:
    answers = {
        "files": json.dumps({"/etc/pylog/broker-1.yml": f"note: {PLANTED}\nbroker_id: 1\n"}),
        "journal-pylog-broker@1": f"cannot reach peer secret={PLANTED}\nuser said {PLANTED}",
        "units": f"Environment=SECRET={PLANTED}",
    }
    contents = members("live1", answers) | {"inventory.json": json.dumps({"s": PLANTED})}
    packed = archive(contents, {PLANTED}, 1_000)
    assert packed == archive(contents, {PLANTED}, 1_000)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {entry.name: tar.extractfile(entry).read().decode() for entry in tar}  # type: ignore[union-attr]
    assert found["pylog-bundle/live1/files/etc/pylog/broker-1.yml"] == f"note: {MASK}\nbroker_id: 1\n"
    assert len(found) == 4
    assert not [name for name, text in found.items() if PLANTED in text]


def test_files_that_could_not_be_read_are_there_as_they_came() -> None:
    assert members("live1", {"files": "Traceback"}) == {"live1/files.txt": "Traceback"}


def test_keys_of_backups_are_secrets_of_the_inventory() -> None:
    key = "5d41402abc4b2a76b9719d911017c592"
    assert secrets_of([{"backup_keys": [key], "backup_count": "fourteen"}]) == {key}
    assert key not in mask(f"backup_keys: {key}\n")
