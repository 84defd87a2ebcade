"""A broker's configuration file: what it says, and that nothing in it is ignored."""

from pathlib import Path

import pytest

from pylog.config import load_broker_config, load_registry_config, standalone_config
from pylog.errors import ConfigError
from pylog.registry.instance import RegistryConfig
from pylog.security.principal import SecurityProtocol

GOOD = """\
version: 1
broker_id: 7
rack: a
listeners:
  client: {host: 0.0.0.0, port: 9092, advertised_host: 10.1.2.3}
  internal: {host: 0.0.0.0, port: 9192}
data_dir: /data/7
admin_socket: /run/pylog/broker-7.sock
metrics_listen: 127.0.0.1:9400
store: {kind: zookeeper, hosts: "a:2181,b:2181", session_timeout_ms: 6000}
cluster_secret_file: SECRET
config:
  num.partitions: 4
  log.retention.hours: 24
"""


def write(directory: Path, text: str) -> Path:
    secret = directory / "secret"
    secret.write_text("hush\n")
    path = directory / "broker.yml"
    path.write_text(text.replace("SECRET", str(secret)))
    return path


def test_a_whole_file_fills_every_part(tmp_path: Path) -> None:
    config = load_broker_config(write(tmp_path, GOOD))
    assert (config.broker_id, config.rack, config.data_dir) == (7, "a", Path("/data/7"))
    assert (config.client.advertised_host, config.client.advertised_port) == ("10.1.2.3", 9092)
    assert config.internal is not None
    assert config.internal.advertised_host == "10.1.2.3"
    assert config.metrics_listen == ("127.0.0.1", 9400)
    assert config.cluster_secret == b"hush"
    assert config.settings["num.partitions"] == 4
    assert config.settings["log.retention.ms"] == 24 * 3_600_000
    assert len(config.config_hash) == 16


def test_a_value_is_taken_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").write_text("from a file")
    monkeypatch.setenv("RACK", "from the environment")
    for text in ("${env:RACK}", "$RACK", "${RACK}", "%RACK%", f"${{file:{tmp_path}/other:rack}}", "{{ RACK }}"):
        config = load_broker_config(write(tmp_path, GOOD.replace("rack: a", f"rack: '{text}'")))
        assert config.rack == text


def test_every_key_but_internal_is_a_listener_for_clients(tmp_path: Path) -> None:
    more = "  secured: {host: 0.0.0.0, port: 9093, advertised_host: log7, security.protocol: SASL_PLAINTEXT}\n"
    config = load_broker_config(write(tmp_path, GOOD.replace("  internal:", f"{more}  internal:")))
    assert list(config.clients) == ["client", "secured"]
    assert config.clients["secured"].settings.protocol is SecurityProtocol.SASL_PLAINTEXT
    assert config.client.settings.protocol is SecurityProtocol.PLAINTEXT, "nothing is inherited"
    assert config.identity()["advertised.listeners"] == "PLAINTEXT://10.1.2.3:9092,SECURED://log7:9093"
    assert config.identity()["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT"


def test_the_first_listener_for_clients_is_the_main_one(tmp_path: Path) -> None:
    config = load_broker_config(write(tmp_path, GOOD.replace("  client:", "  secured:")))
    assert (config.client_name, config.client.port, config.more_clients) == ("secured", 9092, {})


def test_a_programs_file_names_the_file_of_its_password(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("sesame\n")
    password.chmod(0o640)
    block = f"{{protocol: SASL_PLAINTEXT, mechanism: SCRAM-SHA-256, user: a, password_file: {password}}}"
    path = tmp_path / "registry.yml"
    path.write_text(f"version: 1\nlisten: 127.0.0.1:8081\nbootstrap: a:1\nsecurity: {block}\n")
    cluster = load_registry_config(path).cluster
    assert cluster.security().password == "sesame"
    assert "sesame" not in repr(cluster)
    path.write_text("version: 1\nlisten: 127.0.0.1:8081\nbootstrap: a:1\nsecurity: {protocol: SSH}\n")
    with pytest.raises(ConfigError, match=r"registry\.yml:4: security: security\.protocol=SSH: must be one of"):
        load_registry_config(path)


def test_the_secret_is_in_no_representation(tmp_path: Path) -> None:
    assert "hush" not in repr(load_broker_config(write(tmp_path, GOOD)))


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("rack: a", "rak: a", 3, "rak: unknown key"),
        ("  client:", "  SASL_SSL:", 5, "listeners.SASL_SSL: not a name of a listener"),
        ("  client:", "  ssl:", 5, "listeners.ssl: not a name of a listener"),
        ("  client: {host: 0.0.0.0, port: 9092, advertised_host: 10.1.2.3}\n", "", 5, "listeners.client: is missing"),
        ("port: 9192}", "port: 9192, tls: yes}", 6, "listeners.internal.tls: unknown key"),
        ("broker_id: 7", "broker_id: seven", 2, "broker_id: seven: wanted a whole number"),
        ("version: 1", "version: 2", 1, "version: 2: wanted a whole number from 1 to 1"),
        ("kind: zookeeper", "kind: etcd", 10, "store.kind: etcd: wanted zookeeper or embedded"),
        ("num.partitions: 4", "num.partitons: 4", 12, "num.partitons: unknown"),
        ("num.partitions: 4", "num.partitions: 0", 12, "num.partitions=0: must be between 1 and"),
        ("cluster_secret_file: SECRET\n", "", 10, "needs listeners.internal and cluster_secret_file"),
        ("cluster_secret_file: SECRET", "cluster_secret_file: /nowhere", 11, "No such file"),
        ("metrics_listen: 127.0.0.1:9400", "metrics_listen: here", 9, "wanted HOST:PORT"),
        ("rack: a", "rack: a\nrack: b", 4, "rack stands twice"),
        ("data_dir: /data/7\n", "", 1, "data_dir: is missing"),
    ],
)
def test_a_fault_is_named_with_file_and_line(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_broker_config(path)
    assert str(caught.value).startswith(f"{path}:{line}:")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "- a\n", "version: [", "\0"])
def test_what_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.yml"):
        load_broker_config(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_broker_config(tmp_path / "none.yml")


def test_standalone_refuses_unknown_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such|unknown"):
        standalone_config(tmp_path, overrides={"log.segments.bytes": "1"})


SECURED_REGISTRY = """version: 1
listen: {listen}
bootstrap: h:1
login: scram
{more}
"""
SASL = (
    "properties: {security.protocol: SASL_PLAINTEXT, sasl.mechanism: SCRAM-SHA-256, sasl.username: r, sasl.password: s}"
)
TLS = "listen_security: {ssl.keystore.location: /registry.pem}"


def test_a_registry_with_logins_is_encrypted_where_others_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "registry.yml"

    def load(listen: str, *more: str) -> RegistryConfig:
        path.write_text(SECURED_REGISTRY.format(listen=listen, more="\n".join(more)))
        return load_registry_config(path)

    assert load("127.0.0.1:8081", SASL).login_mechanism == "SCRAM-SHA-256"
    secured = load("0.0.0.0:8081", SASL, TLS)
    assert secured.advertised_url.startswith("https://")
    assert secured.tls is not None
    assert secured.tls.client_auth == "none", "no authority is named whose clients could be asked for"
    with pytest.raises(ConfigError, match=r"login: scram at 0\.0\.0\.0 needs listen_security"):
        load("0.0.0.0:8081", SASL)
    with pytest.raises(ConfigError, match=r"login: scram needs brokers that users log in at"):
        load("127.0.0.1:8081")
    with pytest.raises(ConfigError, match=r"login_mechanism: must be one of"):
        load("127.0.0.1:8081", SASL, "login_mechanism: PLAIN")


def test_a_registry_follows_urls(tmp_path: Path) -> None:
    path = tmp_path / "registry.yml"
    text = "version: 1\nlisten: 127.0.0.1:8081\nbootstrap: h:1\nfollow: {}\n"
    path.write_text(text.format('"http://a:8081, http://b:8081"'))
    assert load_registry_config(path).follow == ("http://a:8081", "http://b:8081")
    path.write_text("version: 1\nlisten: 127.0.0.1:8081\nbootstrap: h:1\n")
    assert load_registry_config(path).follow == ()
    path.write_text(text.format("None"))
    with pytest.raises(ConfigError, match=r"follow: must be http://HOST:PORT or https://HOST:PORT, got None"):
        load_registry_config(path)
