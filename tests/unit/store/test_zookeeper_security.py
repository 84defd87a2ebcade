"""The settings of a session with ZooKeeper: what they mean, and which do not fit together."""

from pathlib import Path

import pytest
from cryptography.x509.oid import NameOID

from pylog.config import load_broker_config, load_registry_config
from pylog.errors import ConfigError
from pylog.store.node_rights import Identity, digest_identity
from pylog.store.zookeeper_security import PLAIN, Part, ZooKeeperSecurity, parse_zookeeper_security
from tests.servers.certificates import Authority

TLS = "zookeeper.ssl.client.enable"
TRUST = "zookeeper.ssl.truststore.location"
KEYS = "zookeeper.ssl.keystore.location"
USER = "zookeeper.auth.user"
PASSWORD = "zookeeper.auth.password.file"
ACL = "zookeeper.set.acl"
OWNERS = "zookeeper.acl.owners"
CONSUMERS = "zookeeper.acl.consumers"
REGISTRIES = "zookeeper.acl.registries"
PYLOG = digest_identity("pylog", "correct horse")


@pytest.fixture
def password(tmp_path: Path) -> str:
    path = tmp_path / "zookeeper.password"
    path.write_text("correct horse\nand a second line\n")
    path.chmod(0o640)
    return str(path)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    authority = Authority(tmp_path_factory.mktemp("keys"))
    own = authority.issue("own.pem", (NameOID.ORGANIZATION_NAME, "Org, Ltd"), (NameOID.COMMON_NAME, "pylog"))
    return {TLS: "true", TRUST: str(authority.trusted), KEYS: str(own)}


def test_nothing_given_is_a_plain_session_of_nobody() -> None:
    assert parse_zookeeper_security({}) == PLAIN == ZooKeeperSecurity()
    assert PLAIN.identities == ()


def test_a_user_owns_what_it_makes(password: str) -> None:
    security = parse_zookeeper_security({USER: "pylog", PASSWORD: password, ACL: "true"})
    assert security.identities == (PYLOG,)
    assert security.rights is not None
    assert security.rights.owners == {PYLOG}
    assert "correct horse" not in repr(security)
    assert str(security) == "digest:pylog"


def test_a_certificate_s_subject_is_an_identity_as_java_writes_it(keys: dict[str, str]) -> None:
    security = parse_zookeeper_security(keys | {ACL: "true", OWNERS: r"x509:CN=pylog,O=Org\, Ltd"})
    assert security.identities == (Identity("x509", r"CN=pylog,O=Org\, Ltd"),)
    assert security.rights is not None
    assert security.rights.owners == set(security.identities)


def test_a_consumer_names_the_brokers_and_is_itself_a_consumer(password: str) -> None:
    broker = digest_identity("broker", "other")
    given = {USER: "pylog", PASSWORD: password, ACL: "true", OWNERS: f"digest:{broker.id}"}
    rights = parse_zookeeper_security(given, part=Part.CONSUMER).rights
    assert rights is not None
    assert (rights.owners, rights.consumers) == ({broker}, {PYLOG})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"zookeeper.tls": "true"}, "zookeeper.tls: unknown setting"),
        ({TLS: "yes"}, f"{TLS}: must be true or false"),
        ({TLS: "true"}, f"{TRUST}: must be given exactly where"),
        ({TRUST: "/x"}, f"{TRUST}: must be given exactly where"),
        ({KEYS: "/x"}, f"{KEYS}: needs {TLS}"),
        ({TLS: "true", TRUST: "/x", KEYS: "/no/such"}, f"{KEYS}: /no/such: No such file"),
        ({USER: "pylog"}, f"{USER}: must be given together with {PASSWORD}"),
        ({PASSWORD: "/x"}, f"{USER}: must be given together with {PASSWORD}"),
        ({USER: "py:log", PASSWORD: "/x"}, f"{USER}: must have no colon"),
        ({USER: "pylog", PASSWORD: "/no/such"}, f"{PASSWORD}: /no/such: No such file"),
        ({ACL: "true"}, f"{OWNERS}: must name"),
        ({OWNERS: "x509:CN=a"}, f"{OWNERS}: needs {ACL}"),
        ({CONSUMERS: "x509:CN=a"}, f"{CONSUMERS}: needs {ACL}"),
        ({REGISTRIES: "x509:CN=a"}, f"{REGISTRIES}: needs {ACL}"),
        ({ACL: "true", OWNERS: "x509:CN=a"}, f"{OWNERS}: must have this program's own identity, which is nobody"),
    ],
)
def test_settings_that_do_not_fit_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace(".", r"\.").replace("(", r"\(")):
        parse_zookeeper_security(given)


def test_a_broker_that_would_lock_itself_out_is_refused(password: str) -> None:
    given = {USER: "pylog", PASSWORD: password, ACL: "true", OWNERS: "x509:CN=other"}
    with pytest.raises(ConfigError, match="which is digest:pylog; it would lock itself out"):
        parse_zookeeper_security(given)


def test_a_password_for_everybody_to_read_is_refused(password: str) -> None:
    Path(password).chmod(0o644)
    with pytest.raises(ConfigError, match="must not be readable by everybody"):
        parse_zookeeper_security({USER: "pylog", PASSWORD: password})


_BROKER = """\
version: 1
broker_id: 1
listeners:
  client: {{host: 127.0.0.1, port: 9092}}
  internal: {{host: 127.0.0.1, port: 9093}}
data_dir: /var/lib/pylog
admin_socket: /run/pylog/broker-1.sock
cluster_secret_file: {secret}
store:
  kind: zookeeper
  hosts: 127.0.0.1:2281/pylog
  {more}
"""


def test_a_broker_s_file_has_them_beside_the_hosts(tmp_path: Path, password: str) -> None:
    file = tmp_path / "broker.yml"
    user = f"zookeeper.auth.user: pylog\n  zookeeper.auth.password.file: {password}\n  zookeeper.set.acl: true"
    file.write_text(_BROKER.format(secret=password, more=user))
    assert load_broker_config(file).store.security.identities == (PYLOG,)
    file.write_text(_BROKER.format(secret=password, more="zookeeper.set.acl: true"))
    with pytest.raises(ConfigError, match=r"broker\.yml:12: store\.zookeeper\.set\.acl: .*must name the identities"):
        load_broker_config(file)


def test_the_registry_s_file_has_a_block(tmp_path: Path, password: str) -> None:
    file = tmp_path / "registry.yml"
    text = "version: 1\nlisten: 127.0.0.1:8081\nbootstrap: 127.0.0.1:9092\nzookeeper: 127.0.0.1:2281\n"
    block = f"zookeeper_security:\n  zookeeper.auth.user: pylog\n  zookeeper.auth.password.file: {password}\n"
    file.write_text(text + block)
    assert load_registry_config(file).zookeeper_security.identities == (PYLOG,)
    file.write_text(text + "zookeeper_security: {zookeeper.auth.user: pylog}\n")
    with pytest.raises(ConfigError, match=r"registry\.yml:5: zookeeper_security: .*must be given together"):
        load_registry_config(file)
