"""Names of certificates as Java writes them, and the rules that make users of them."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from pylog.errors import ConfigError
from pylog.security.certificates import DEFAULT_RULES, distinguished_name, parse_rules, user_of
from pylog.security.exchange import LoginFailed
from tests.servers.certificates import Authority


def der(directory: Path, *names: tuple[x509.ObjectIdentifier, str]) -> bytes:
    path = Authority(directory).issue("client.pem", *names)
    return x509.load_pem_x509_certificates(path.read_bytes())[0].public_bytes(serialization.Encoding.DER)


def test_a_name_is_the_reverse_of_the_certificate_s(tmp_path: Path) -> None:
    names = (NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Org"), (NameOID.COMMON_NAME, "host-a")
    assert distinguished_name(der(tmp_path, *names)) == "CN=host-a,O=Org,C=DE"


def test_attributes_that_java_does_not_know_are_hexadecimal(tmp_path: Path) -> None:
    names = (NameOID.EMAIL_ADDRESS, "a@b"), (NameOID.SERIAL_NUMBER, "7"), (NameOID.COMMON_NAME, "x")
    assert distinguished_name(der(tmp_path, *names)) == "CN=x,2.5.4.5=#130137,1.2.840.113549.1.9.1=#1603614062"


def test_special_characters_are_escaped(tmp_path: Path) -> None:
    assert distinguished_name(der(tmp_path, (NameOID.COMMON_NAME, ' a,b+"c"; '))) == r"CN=\ a\,b\+\"c\"\;\ "


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=([^,]+),.*$/$1/", "CN=a,O=b", "a"),
        ("RULE:CN=([^,]+),.*/$1@x/U", "CN=a,O=b", "A@X"),
        ("RULE:CN=(.*),O=b/$1/L, DEFAULT", "CN=Alice,O=b", "alice"),
        ("RULE:CN=z/none/,RULE:CN=(a),(.*)/$2 $1/", "CN=a,O=b", "O=b a"),
        (r"RULE:CN=a\/b/c\/d/", "CN=a/b", "c/d"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_wins(rules: str, name: str, user: str) -> None:
    results = (rule.apply(name) for rule in parse_rules(rules))
    assert next(found for found in results if found is not None) == user


def test_a_rule_matches_the_whole_name_only() -> None:
    [rule] = parse_rules("RULE:CN=a/admin/")
    assert rule.apply("CN=a") == "admin"
    assert rule.apply("CN=a,O=evil") is None
    assert rule.apply("O=evil,CN=a") is None
    assert rule.apply("CN=a\n") is None


@pytest.mark.parametrize(
    "text", ["CN", "RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "DEFAULT DEFAULT", "RULE:a/b/X", "default"]
)
def test_a_wrong_rule_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(text)


def test_a_certificate_without_a_rule_is_refused(tmp_path: Path) -> None:
    certificate = der(tmp_path, (NameOID.COMMON_NAME, "a"))
    assert user_of(certificate, DEFAULT_RULES) == "CN=a"
    with pytest.raises(LoginFailed, match="no rule"):
        user_of(certificate, parse_rules("RULE:CN=b/b/"))
    with pytest.raises(LoginFailed, match="not allowed"):
        user_of(certificate, parse_rules("RULE:CN=a/ANONYMOUS/"))
    with pytest.raises(LoginFailed, match="cannot be read"):
        user_of(b"noise", DEFAULT_RULES)
