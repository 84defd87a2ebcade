"""Certificates of a deployment: who gets which, what is wrong with one, how requests are signed."""

import datetime as dt
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pylog.ops import host, keys
from pylog.ops.certificates import (
    CertificateError,
    Holder,
    authority_problems,
    ensemble_settings,
    expiries,
    holders,
    names_of,
    problems,
    signed_certificate,
)
from tests.servers.certificates import Authority

NOW = dt.datetime(2030, 1, 31, 12, tzinfo=dt.UTC)
GROUP = "root"
HOLDER = Holder(
    name="pylog",
    common_name="pylog",
    path="/etc/pylog/tls.pem",
    user="pylog",
    home="/var/lib/pylog",
    names=("log1.example", "10.0.0.1", "localhost"),
)


def authority(
    days: int = 3650, name: str = "log-ca", is_authority: bool = True, now: dt.datetime = NOW
) -> tuple[str, str]:
    """Return certificate and key of a new authority that ends *days* after *now*."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), text.decode()


CA, CA_KEY = authority()
# For those who look at the clock.
CURRENT, CURRENT_KEY = authority(now=dt.datetime.now(dt.UTC))


def issued(path: Path, holder: Holder = HOLDER, days: int = 365, ca: tuple[str, str] = (CA, CA_KEY)) -> str:
    """Return the certificate that a host below *path* gets, whose key is pending there."""
    request = keys.request({"path": str(path / "tls.pem"), "common_name": holder.common_name})["request"]
    return signed_certificate(request, authority_pem=ca[0], key_pem=ca[1], holder=holder, now=NOW, days=days)


def judged(pem: str, **changes: Any) -> list[str]:
    given: dict[str, Any] = {"authority_pem": CA, "holder": HOLDER, "now": NOW, "renew_days": 30}
    return problems(pem, **(given | changes))


def test_worker_and_watch_of_connect_have_certificates_of_their_own() -> None:
    found = holders("h1", {"h1": {"pylog_security": "sasl_ssl"}}, {"pylog_connect": ["h1"]})
    assert [(one.name, one.path, one.user) for one in found] == [
        ("connect", "/etc/pylog-connect/tls.pem", "pylog-connect"),
        ("connect_watch", "/etc/pylog/connect.pem", "pylog"),
    ]


def test_an_issued_certificate_is_what_the_inventory_wants(tmp_path: Path) -> None:
    pem = issued(tmp_path)
    assert judged(pem) == []
    certificate = x509.load_pem_x509_certificate(pem.encode())
    assert names_of(certificate) == set(HOLDER.names)
    assert certificate.not_valid_after_utc == NOW + dt.timedelta(days=365)
    assert certificate.not_valid_before_utc == NOW - dt.timedelta(hours=1), "for hosts whose clock is behind"


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"now": NOW + dt.timedelta(days=334)}, []),
        ({"now": NOW + dt.timedelta(days=336)}, ["it ends on 2031-01-31, in 29 days"]),
        ({"now": NOW + dt.timedelta(days=366)}, ["it ended on 2031-01-31"]),
        ({"now": NOW - dt.timedelta(hours=2)}, ["it is valid from 2030-01-31 11:00 UTC on"]),
        ({"authority_pem": authority()[0]}, ["no trusted authority has issued it"]),
        ({"authority_pem": authority()[0] + CA}, []),
    ],
)
def test_what_is_wrong_with_a_certificate(changes: dict[str, Any], found: list[str], tmp_path: Path) -> None:
    assert judged(issued(tmp_path), **changes) == found


def test_a_new_address_needs_a_new_certificate(tmp_path: Path) -> None:
    pem = issued(tmp_path)
    more = Holder(**{name: getattr(HOLDER, name) for name in HOLDER.__slots__} | {"names": (*HOLDER.names, "10.0.0.9")})
    assert judged(pem, holder=more) == ["it does not cover 10.0.0.9"]


def test_another_identity_needs_a_new_certificate_unless_the_operator_has_chosen_it(tmp_path: Path) -> None:
    other = Holder(**{name: getattr(HOLDER, name) for name in HOLDER.__slots__} | {"common_name": "registry"})
    pem = issued(tmp_path)
    assert judged(pem, holder=other) == ["its subject is not CN=registry"]
    assert judged(pem, holder=other, is_given=True) == []


def test_a_missing_and_an_unreadable_certificate() -> None:
    assert judged("") == ["there is none"]
    assert judged("no PEM")[0].startswith("no certificate in PEM can be read")


def test_a_certificate_ends_with_its_authority_and_is_not_renewed_for_it(tmp_path: Path) -> None:
    near = authority(days=20)
    pem = issued(tmp_path, ca=near)
    assert judged(pem, authority_pem=near[0]) == []
    assert judged(pem, authority_pem=near[0], now=NOW + dt.timedelta(days=21)) == ["it ended on 2030-02-20"]


def test_what_expires_when_is_told_of_the_hosts_own_certificates(tmp_path: Path) -> None:
    chain = issued(tmp_path, days=10) + CA
    text = expiries({"/etc/pylog/b.pem": chain, "/etc/pylog/a.pem": CA, "/etc/pylog/torn.pem": "-----BEGIN"})
    name, day_s = "pylog_host_certificate_expires_timestamp_seconds", 86_400
    now_s = int(NOW.timestamp())
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        f'{name}{{file="/etc/pylog/a.pem"}} {now_s + 3650 * day_s}',
        f'{name}{{file="/etc/pylog/b.pem"}} {now_s + 10 * day_s}',
    ]
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_request_that_somebody_else_has_signed_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "tls.pem")
    first = keys.request({"path": path, "common_name": "pylog"})["request"]
    request = x509.load_pem_x509_csr(first.encode()).public_bytes(serialization.Encoding.DER)
    broken = ssl.DER_cert_to_PEM_cert(request[:-1] + bytes([request[-1] ^ 1])).replace(
        "CERTIFICATE", "CERTIFICATE REQUEST"
    )
    for text in (broken, "nothing"):
        with pytest.raises(CertificateError, match="certificate request of pylog"):
            signed_certificate(text, authority_pem=CA, key_pem=CA_KEY, holder=HOLDER, now=NOW, days=1)


def test_a_key_that_is_not_the_authoritys_is_refused_without_being_shown(tmp_path: Path) -> None:
    _, other = authority()
    request = keys.request({"path": str(tmp_path / "tls.pem"), "common_name": "pylog"})["request"]
    for key in (other, "SECRET"):
        with pytest.raises(CertificateError, match="certificates_ca_key") as caught:
            signed_certificate(request, authority_pem=CA, key_pem=key, holder=HOLDER, now=NOW, days=1)
        assert "SECRET" not in str(caught.value)


def test_the_key_stays_on_the_host_and_only_root_and_the_group_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    about = {"path": str(path), "chain": issued(tmp_path), "group": GROUP}
    pending = Path(f"{path}.request")
    assert pending.stat().st_mode & 0o777 == 0o600
    assert keys.install(about) == {"changed": True}
    assert path.stat().st_mode & 0o777 == 0o640
    assert not pending.exists()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    assert "PRIVATE KEY" not in keys.certificates_in(path.read_text())
    assert judged(keys.certificates_in(path.read_text())) == []


def test_a_renewal_has_a_new_key_and_the_former_pair_serves_until_then(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    keys.install({"path": str(path), "chain": issued(tmp_path), "group": GROUP})
    before = path.read_text()
    chain = issued(tmp_path)
    assert path.read_text() == before
    keys.install({"path": str(path), "chain": chain, "group": GROUP})
    assert path.read_text() != before
    with pytest.raises(keys.KeyProblem, match="request a certificate first"):
        keys.install({"path": str(path), "chain": chain, "group": GROUP})


def test_a_certificate_for_another_key_is_refused_and_the_former_pair_stays(tmp_path: Path) -> None:
    path = tmp_path / "tls.pem"
    keys.install({"path": str(path), "chain": issued(tmp_path), "group": GROUP})
    before = path.read_text()
    stale = issued(tmp_path)
    issued(tmp_path)  # asked again: the pending key is another one
    with pytest.raises(keys.KeyProblem, match="for another private key"):
        keys.install({"path": str(path), "chain": stale, "group": GROUP})
    assert path.read_text() == before


def test_a_pair_of_the_operators_is_installed_once(tmp_path: Path) -> None:
    chain = issued(tmp_path)
    key = Path(f"{tmp_path}/tls.pem.request").read_text()
    about = {"path": str(tmp_path / "given.pem"), "chain": key + chain, "key": key, "group": GROUP}
    assert keys.install(about) == {"changed": True}
    assert keys.install(about) == {"changed": False}


@pytest.mark.parametrize(
    ("pem", "key", "found"),
    [
        (CA, CA_KEY, []),
        (CA, "", []),
        (CA, authority()[1], ["certificates_ca_key is another one's key"]),
        (authority(days=59)[0], "", ["it ends on 2030-03-31"]),
        (authority(is_authority=False)[0], "", ["its first certificate is no authority (CA:TRUE)"]),
        ("", CA_KEY, ["no certificate in PEM can be read"]),
    ],
)
def test_what_is_wrong_with_an_authority(pem: str, key: str, found: list[str]) -> None:
    rows = authority_problems(pem, key, NOW)
    assert [row[0][: len(text)] for row, text in zip(rows, found, strict=True)] == found


def test_a_given_chain_without_its_intermediate_is_refused(tmp_path: Path) -> None:
    """Programs of ours might trust it, since they look at one more file; Java's clients would not."""
    root = x509.load_pem_x509_certificate(CA.encode())
    root_key = serialization.load_pem_private_key(CA_KEY.encode(), None)
    assert isinstance(root_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    intermediate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "intermediate")]))
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=1000))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(root_key, hashes.SHA256())
    )
    middle = intermediate.public_bytes(serialization.Encoding.PEM).decode()
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    leaf = issued(tmp_path, ca=(middle, key_pem.decode()))
    assert judged(leaf + middle) == []
    assert judged(leaf) == ["no trusted authority has issued it"]


def test_an_authority_of_tests_is_refused(tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC) - dt.timedelta(days=100)  # it lasts ten days: not what is looked at here
    rows = authority_problems(Authority(tmp_path).trusted.read_text(), "", now)
    assert [row[0] for row in rows] == ["pylog test authority: its key is made for tests"]


def test_hosts_get_the_certificates_of_what_they_run_and_brokers_have_the_proxys_name_too() -> None:
    hosts: dict[str, dict[str, Any]] = {
        "h1": {"pylog_security": "sasl_ssl", "pylog_address": "10.0.0.1", "broker_advertised_host": "log1.example"},
        "h2": {"pylog_security": "sasl_ssl", "pylog_address": "10.0.0.2"},
        "h3": {"pylog_address": "10.0.0.3"},
    }
    groups = {"pylog_broker": ["h1", "h3"], "pylog_zookeeper": ["h1"], "pylog_load_balancer": ["h2"]}
    found = {one.name: one for one in holders("h1", hosts, groups)}
    assert found["pylog"].names == ("10.0.0.1", "h1", "log1.example", "10.0.0.2", "localhost", "127.0.0.1")
    assert found["zookeeper"].path == "/etc/pylog-zookeeper/tls.pem"
    assert found["zookeeper"].names == ("10.0.0.1", "h1", "localhost", "127.0.0.1")
    assert found["metrics"].path == "/etc/pylog/metrics.pem"
    assert [(one.name, one.user) for one in holders("h2", hosts, groups)] == [("load_balancer", "haproxy")]
    assert holders("h3", hosts, groups) == []


def test_every_host_of_a_secured_datacenter_has_a_certificate_for_the_metrics_that_somebody_scrapes() -> None:
    secured = {"pylog_security": "sasl_ssl"}
    hosts = {"h1": secured, "h2": secured, "h3": {}, "h4": secured}
    groups = {"pylog_broker": ["h1", "h3"], "pylog_ship": ["h2"], "pylog_monitoring": ["h2"], "other": ["h4"]}
    found = {name: [(one.name, one.user) for one in holders(name, hosts, groups)] for name in hosts}
    assert found == {
        "h1": [("pylog", "pylog"), ("metrics", "pylog"), ("monitoring", "prometheus")],
        "h2": [("monitoring", "prometheus")],
        "h3": [],
        "h4": [],
    }


def test_programs_of_a_secured_datacenter_share_the_settings_of_its_ensemble(tmp_path: Path) -> None:
    secured = {"pylog_security": "sasl_ssl", "pylog_datacenter": "live"}
    chosen = Holder(**{name: getattr(HOLDER, name) for name in HOLDER.__slots__} | {"common_name": "log1"})
    given = {"pylog": {"chain": issued(tmp_path, chosen), "key": ""}}
    hosts: dict[str, dict[str, Any]] = {
        "h1": secured, "h2": secured | {"certificates_given": given}, "h3": {"pylog_datacenter": "open"},
        "h4": secured | {"pylog_datacenter": "mixed", "zookeeper_encrypted": False},
        "h5": {"pylog_security": "sasl_ssl", "pylog_datacenter": "other", "registry_datacenter": "live"},
    }  # fmt: skip
    groups = {
        "pylog_broker": ["h1", "h2", "h3", "h4"], "pylog_zookeeper": ["h1", "h3", "h4"], "pylog_registry": ["h5"],
    }  # fmt: skip
    found = ensemble_settings(hosts, groups, {"live": "acl", "open": "open", "mixed": "open"})
    assert set(found) == {"live"}, "the others are open, or keep ZooKeeper open"
    assert found["live"]["rights"] == {
        "zookeeper.set.acl": "true",
        "zookeeper.acl.owners": "x509:CN=log1;x509:CN=pylog",
        "zookeeper.acl.registries": "x509:CN=pylog-registry",
    }
    shown = ensemble_settings(hosts, groups, {"live": "tls"})
    assert shown == {"live": {"connection": found["live"]["connection"], "rights": {}}}, "nodes stay open so far"


def test_a_secured_zookeeper_server_is_asked_by_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tls.pem"
    now = dt.datetime.now(dt.UTC)
    request = keys.request({"path": str(path), "common_name": "pylog-zookeeper"})["request"]
    chain = signed_certificate(request, authority_pem=CURRENT, key_pem=CURRENT_KEY, holder=HOLDER, now=now, days=1)
    keys.install({"path": str(path), "chain": chain, "group": GROUP})
    (tmp_path / "ca.pem").write_text(CURRENT)
    monkeypatch.setattr(host, "ZOOKEEPER_KEYS", path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(path)
    with socket.create_server(("localhost", 0)) as listener:

        def serve() -> None:
            with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
                connection.sendall(b"asked " + connection.recv(4))

        thread = threading.Thread(target=serve)
        thread.start()
        assert host.four_letters("mntr", listener.getsockname()[1]) == "asked mntr"
        thread.join()


def test_a_server_that_is_not_secured_yet_is_still_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tls.pem"
    keys.install({"path": str(path), "chain": issued(tmp_path), "group": GROUP})
    (tmp_path / "ca.pem").write_text(CA)
    monkeypatch.setattr(host, "ZOOKEEPER_KEYS", path)
    with socket.create_server(("localhost", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                with listener.accept()[0] as connection:
                    if (said := connection.recv(4)) == b"mntr":
                        connection.sendall(b"asked " + said)

        thread = threading.Thread(target=serve)
        thread.start()
        assert host.four_letters("mntr", listener.getsockname()[1]) == "asked mntr"
        thread.join()
