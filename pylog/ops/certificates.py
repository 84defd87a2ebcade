"""The certificates of a deployment: who gets which, what is wrong with one, and how the authority signs a request.

Pure but for the serial numbers.  Private keys are made on the hosts (`pylog.ops.keys`) and stay there: a request comes
in, a chain goes out.  Of a request only the public key is taken; names and uses come from the inventory.
"""

import contextlib
import datetime as dt
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pylog.ops.addresses import address
from pylog.ops.listeners import numeric
from pylog.ops.migration import ACL, OPEN
from pylog.security.certificates import subject_of

SECURED = "sasl_ssl"
"""Value of `pylog_security` with which everything is encrypted and every client logs in."""

AUTHORITY_LEFT_DAYS = 60
"""An authority that ends earlier than this is a finding: replacing it takes three runs and all clients."""

BROKER_NAME = "pylog"
REGISTRY_NAME = "pylog-registry"
"""Common names of certificates, by which ZooKeeper knows brokers and registries."""

_BACKDATED = dt.timedelta(hours=1)
"""A host whose clock is behind must not take a new certificate for one of the future."""

_TEST_AUTHORITIES = frozenset({"pylog test authority", "pylog.testing"})
"""Common names of the authorities that tests make, whose keys lie in directories of tests."""

_SIGNING = (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)

Variables = Mapping[str, Any]


class CertificateError(ValueError):
    """A certificate, a key or a request cannot be used; the message says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A certificate that a host gets.

    Attributes:
        name: what it is for; unique on the host.
        common_name: the only part of the subject, and so the identity of whoever shows it.
        path: file on the host with the private key and the chain.
        user: system user whose group may read it.
        home: that user's directory.
        names: names and addresses that the certificate is valid for.
    """

    name: str
    common_name: str
    path: str
    user: str
    home: str
    names: tuple[str, ...]


def holders(name: str, hosts: Mapping[str, Variables], groups: Mapping[str, Iterable[str]]) -> list[Holder]:
    """Return the certificates of host *name*; none where the inventory does not ask for encryption."""
    variables = hosts[name]
    if variables.get("pylog_security") != SECURED:
        return []
    mine = {group for group, members in groups.items() if name in members}
    more = [str(one) for one in variables.get("certificates_names") or []]
    own = [address(name, variables), name, *more]
    found = []
    if "pylog_broker" in mine:
        told = [variables.get(one) for one in ("broker_advertised_host", "broker_internal_advertised_host")]
        # The proxy hands connections on as they are, so clients expect its name from the broker.
        proxies = [address(host, hosts[host]) for host in _neighbors(name, hosts, groups, "pylog_load_balancer")]
        found.append(_holder("pylog", BROKER_NAME, "/etc/pylog/tls.pem", [*own, *told, *proxies]))
    if "pylog_registry" in mine:
        found.append(_holder("registry", REGISTRY_NAME, "/etc/pylog/registry.pem", own))
    if "pylog_probe" in mine:
        found.append(_holder("probe", "pylog-probe", "/etc/pylog/probe.pem", own))
    if "pylog_console" in mine and not _is_loopback(str(variables.get("console_listen") or "127.0.0.1:8085")):
        found.append(_holder("console", "pylog-console", "/etc/pylog/console.pem", own))
    if "pylog_connect" in mine:
        # The worker's, and that of the watch, which is another user.
        user, path = "pylog-connect", "/etc/pylog-connect/tls.pem"
        found.append(_holder("connect", "pylog-connect", path, own, user, "/var/lib/pylog-connect"))
        found.append(_holder("connect_watch", "pylog-connect-watch", "/etc/pylog/connect.pem", own))
    if "pylog_zookeeper" in mine:
        given = [variables.get("zookeeper_address")]
        home = str(variables.get("zookeeper_data_dir") or "/var/lib/pylog-zookeeper")
        path = "/etc/pylog-zookeeper/tls.pem"
        found.append(_holder("zookeeper", "pylog-zookeeper", path, [*own, *given], "pylog-zookeeper", home))
    # Of pages that are scraped, and of Prometheus, which shows its own: nobody else gets their metrics.
    if mine & {"pylog_broker", "pylog_mirror", "pylog_audit", "pylog_probe"}:
        found.append(_holder("metrics", "pylog-metrics", "/etc/pylog/metrics.pem", own))
    if "pylog_load_balancer" in mine:
        path = "/etc/pylog-load-balancer/tls.pem"
        found.append(_holder("load_balancer", "pylog-load-balancer", path, own, "haproxy", "/var/lib/haproxy"))
    if groups.get("pylog_monitoring") and any(group.startswith("pylog_") for group in mine):
        path = "/etc/pylog-monitoring/tls.pem"
        found.append(_holder("monitoring", "pylog-monitoring", path, own, "prometheus", "/var/lib/prometheus"))
    return found


def _is_loopback(listen: str) -> bool:
    found = numeric(listen.rpartition(":")[0].strip("[]"))
    return found is not None and found.is_loopback


def is_ensemble_encrypted(variables: Variables) -> bool:
    """Return whether ZooKeeper servers of a host's datacenter take TLS alone; unless set, where brokers are secured."""
    return bool(variables.get("zookeeper_encrypted", variables.get("pylog_security") == SECURED))


def ensemble_settings(
    hosts: Mapping[str, Variables], groups: Mapping[str, Iterable[str]], stores: Mapping[str, str]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return datacenter -> the settings `zookeeper.*` that all programs share, for each whose ensemble is encrypted.

    ``connection`` has those of TLS but for the program's own certificate, ``rights`` the ACLs of nodes.  Brokers own
    the tree by the subject of their certificates; registries have a part of it.

    Args:
        hosts: host -> its templated variables.
        groups: name -> hosts.
        stores: datacenter -> how its programs connect to ZooKeeper, as `pylog.ops.migration.Stage` has it.
    """
    found = {}
    places = {str(hosts.get(name, {}).get("pylog_datacenter", "all")) for name in groups.get("pylog_zookeeper", ())}
    for place in sorted(places):
        store = stores.get(place, OPEN)
        if store == OPEN:
            continue
        brokers = [name for name in groups.get("pylog_broker", ()) if _is_at(hosts, name, "pylog_datacenter", place)]
        registries = [
            name for name in groups.get("pylog_registry", ()) if _is_at(hosts, name, "registry_datacenter", place)
        ]
        connection = {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": "/etc/pylog/ca.pem",
        }
        rights = {
            "zookeeper.set.acl": "true",
            "zookeeper.acl.owners": _identities(hosts, brokers, "pylog", BROKER_NAME),
        }
        if registries:
            rights["zookeeper.acl.registries"] = _identities(hosts, registries, "registry", REGISTRY_NAME)
        found[place] = {"connection": connection, "rights": rights if store == ACL else {}}
    return found


def _is_at(hosts: Mapping[str, Variables], name: str, variable: str, place: str) -> bool:
    variables = hosts.get(name, {})
    return str(variables.get(variable) or variables.get("pylog_datacenter", "all")) == place


def _identities(hosts: Mapping[str, Variables], names: Iterable[str], kind: str, common_name: str) -> str:
    subjects = {_subject(hosts[name].get("certificates_given"), kind, common_name) for name in names}
    return ";".join(f"x509:{subject}" for subject in sorted(subjects))


def _subject(given: object, kind: str, common_name: str) -> str:
    """Return the subject of a host's certificate; that of a given one which cannot be read is a finding elsewhere."""
    if isinstance(given, Mapping) and isinstance(entry := given.get(kind), Mapping):
        try:
            return subject_of(authorities(str(entry.get("chain") or ""))[0])
        except (CertificateError, ValueError, TypeError):
            return f"CN={common_name}"
    return f"CN={common_name}"


def _neighbors(
    name: str, hosts: Mapping[str, Variables], groups: Mapping[str, Iterable[str]], group: str
) -> Iterable[str]:
    place = hosts[name].get("pylog_datacenter", "all")
    return (host for host in groups.get(group, ()) if hosts.get(host, {}).get("pylog_datacenter", "all") == place)


def _holder(
    name: str,
    common_name: str,
    path: str,
    names: Sequence[object],
    user: str = "pylog",
    home: str = "/var/lib/pylog",
) -> Holder:
    # Checks on the host itself connect to the loopback address.
    texts = [str(one) for one in [*names, "localhost", "127.0.0.1"] if one]
    return Holder(
        name=name, common_name=common_name, path=path, user=user, home=home, names=tuple(dict.fromkeys(texts))
    )


def authorities(pem: str) -> list[x509.Certificate]:
    """Return the certificates in *pem*, at least one.

    Raises:
        CertificateError: there is none, or one cannot be read.
    """
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise CertificateError(f"no certificate in PEM can be read: {error}") from None


def signed_certificate(
    request_pem: str, *, authority_pem: str, key_pem: str, holder: Holder, now: dt.datetime, days: int
) -> str:
    """Return the certificate for the public key of a request, in PEM.

    Args:
        request_pem: the request, which the owner of the private key has signed.
        authority_pem: the authority's certificate; of several the first one.
        key_pem: its private key, not encrypted.
        holder: whose certificate it becomes.
        now: the time, with its zone.
        days: validity; cut to that of the authority.

    Raises:
        CertificateError: the request is not signed with its own key, or the authority's key is not the authority's.
    """
    authority = authorities(authority_pem)[0]
    key = _private_key(key_pem)
    if key.public_key() != authority.public_key():
        raise CertificateError("certificates_ca_key is not the key of certificates_ca")
    try:
        request = x509.load_pem_x509_csr(request_pem.encode())
        is_genuine = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise CertificateError(f"certificate request of {holder.name} cannot be read: {error}") from None
    if not is_genuine:
        raise CertificateError(f"certificate request of {holder.name} is not signed with its own key")
    not_after = min(now + dt.timedelta(days=days), authority.not_valid_after_utc)
    digest = None if isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey) else hashes.SHA256()
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, holder.common_name)]))
        .issuer_name(authority.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general_name(one) for one in holder.names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .add_extension(_key_usage(), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(request.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),  # type: ignore[arg-type]
            critical=False,
        )
        .sign(key, digest)
    )
    return certificate.public_bytes(Encoding.PEM).decode()


def _private_key(
    pem: str,
) -> rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey:
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # The library's own words may show parts of the file.
        raise CertificateError("certificates_ca_key is no private key in PEM, or it has a passphrase") from None
    if not isinstance(key, _SIGNING):
        raise CertificateError(f"certificates_ca_key is a {type(key).__name__}; RSA, EC or Ed25519 is allowed")
    return key


def _key_usage() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=False,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


EXPIRES = "pylog_host_certificate_expires_timestamp_seconds"
"""What the node exporter shows of each certificate that this bundle has put on the host."""


def expiries(pems: Mapping[str, str]) -> str:
    """Return, in Prometheus's text format, when the certificates expire.

    Args:
        pems: path -> chain in PEM, the host's own certificate first; what cannot be read is left out.
    """
    lines = [f"# HELP {EXPIRES} When the certificate in a file of this host expires.", f"# TYPE {EXPIRES} gauge"]
    for path, pem in sorted(pems.items()):
        with contextlib.suppress(CertificateError):
            ends = authorities(pem)[0].not_valid_after_utc
            lines.append(f'{EXPIRES}{{file="{path}"}} {ends.timestamp():.0f}')
    return "\n".join(lines) + "\n"


def problems(
    pem: str, *, authority_pem: str, holder: Holder, now: dt.datetime, renew_days: int, is_given: bool = False
) -> list[str]:
    """Return why the certificate of *holder* has to be replaced; nothing where it may stay.

    Args:
        pem: the chain on the host, the host's own certificate first; empty where there is none.
        authority_pem: certificates of the authorities that are trusted.
        holder: whose certificate it has to be.
        now: the time, with its zone.
        renew_days: it is replaced so many days before its end.
        is_given: it comes from the operator, who chooses the subject.

    Raises:
        CertificateError: `authority_pem` has no certificate.
    """
    trusted = authorities(authority_pem)
    if not pem:
        return ["there is none"]
    try:
        chain = authorities(pem)
    except CertificateError as error:
        return [str(error)]
    certificate = chain[0]
    left = certificate.not_valid_after_utc - now
    found = []
    if left <= dt.timedelta(0):
        found.append(f"it ended on {certificate.not_valid_after_utc:%Y-%m-%d}")
    elif left < dt.timedelta(days=renew_days) and (
        # What ends with its authority cannot be made to last longer.
        is_given or not any(one.not_valid_after_utc <= certificate.not_valid_after_utc for one in trusted[:1])
    ):
        found.append(f"it ends on {certificate.not_valid_after_utc:%Y-%m-%d}, in {left.days} days")
    if certificate.not_valid_before_utc > now:
        found.append(f"it is valid from {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on")
    if not _is_issued_by(chain, trusted):
        found.append("no trusted authority has issued it")
    if missing := sorted(set(holder.names) - names_of(certificate)):
        found.append(f"it does not cover {', '.join(missing)}")
    if not is_given and _common_name(certificate) != holder.common_name:
        found.append(f"its subject is not CN={holder.common_name}")
    return found


def names_of(certificate: x509.Certificate) -> set[str]:
    """Return the names and addresses that *certificate* is valid for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return set()
    addresses = {str(one) for one in names.get_values_for_type(x509.IPAddress)}
    return {*names.get_values_for_type(x509.DNSName)} | addresses


def _is_issued_by(chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate]) -> bool:
    """Return whether a trusted authority has issued the first of *chain*, through the others if need be."""
    for number, certificate in enumerate(chain):
        if certificate in trusted or any(_issued(certificate, one) for one in trusted):
            return True
        if number + 1 == len(chain) or not _issued(certificate, chain[number + 1]):
            return False
    return False


def _issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _common_name(certificate: x509.Certificate) -> str:
    names = certificate.subject.rdns
    attributes = [one for part in names for one in part]
    is_alone = len(attributes) == 1 and attributes[0].oid == NameOID.COMMON_NAME
    return str(attributes[0].value) if is_alone else ""


def authority_problems(pem: str, key_pem: str, now: dt.datetime) -> list[tuple[str, str, str]]:
    """Return (found, wanted, remedy) for what is wrong with the authority of an inventory.

    Args:
        pem: certificates of the trusted authorities, the one that signs first.
        key_pem: its key; empty where certificates are given and nothing is signed.
        now: the time, with its zone.
    """
    remedy = "see handbook, Certificates"
    try:
        found = authorities(pem)
    except CertificateError as error:
        return [(str(error), "the certificate of an authority, in PEM", remedy)]
    rows = []
    if names := sorted(_TEST_AUTHORITIES & {_common_name(one) for one in found}):
        rows.append((f"{', '.join(names)}: its key is made for tests", "an authority of your own", remedy))
    try:
        is_authority = found[0].extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        is_authority = False
    if not is_authority:
        rows.append(("its first certificate is no authority (CA:TRUE)", "the certificate of an authority", remedy))
    left = found[0].not_valid_after_utc - now
    if left < dt.timedelta(days=AUTHORITY_LEFT_DAYS):
        rows.append((f"it ends on {found[0].not_valid_after_utc:%Y-%m-%d}", f"{AUTHORITY_LEFT_DAYS} days left", remedy))
    if key_pem:
        try:
            if _private_key(key_pem).public_key() != found[0].public_key():
                rows.append(("certificates_ca_key is another one's key", "the authority's own key", remedy))
        except CertificateError as error:
            rows.append((str(error), "its private key, in PEM", remedy))
    return rows
