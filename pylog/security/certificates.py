r"""The principal of a client that shows a certificate: its distinguished name, as an operator's rules rewrite it.

rule => "DEFAULT" | "RULE:" regex "/" replacement "/" ["L" | "U"]      (separated by commas; `\/` is a slash)

The first rule whose regex matches the whole name wins; DEFAULT takes the name as it is; if none matches the connection
is closed.  `$1` in a replacement stands for a group; L and U make the result lower or upper case.

Source: KIP-371; RFC 2253 for the order of a name, with the attributes that Java knows by name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier

from pylog.errors import ConfigError
from pylog.security.exchange import LoginFailed, check_name

_NAMES = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
"""Attributes with a name in RFC 2253; Java writes all others as numbers with their bytes in hexadecimal."""

_RULE = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_SPECIAL = re.compile(r'([,+"\\<>;])')
_REFERENCE = re.compile(r"\$(\d)|\\(.)")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without a pattern it is DEFAULT."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Return what becomes of *name*, None if the rule does not match it."""
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        text = _REFERENCE.sub(lambda one: one[2] or found[int(one[1])] or "", self.replacement)
        return text.lower() if self.case == "L" else text.upper() if self.case == "U" else text


DEFAULT_RULES = (Rule(),)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of ``ssl.principal.mapping.rules``.

    Raises:
        ConfigError: the text is not a list of rules, or a regex or a reference in it is wrong.
    """
    rules: list[Rule] = []
    rest = text.strip()
    while rest:
        found = _RULE.match(rest)
        if found is None:
            raise ConfigError(f"ssl.principal.mapping.rules: {rest!r} does not begin with DEFAULT or RULE:regex/text/")
        rules.append(Rule() if found[0] == "DEFAULT" else _rule(*found.groups()))
        rest = rest[found.end() :].lstrip()
        if rest and not rest.startswith(","):
            raise ConfigError(f"ssl.principal.mapping.rules: a comma must stand before {rest!r}")
        rest = rest[1:].lstrip()
    return tuple(rules) or DEFAULT_RULES


def _rule(regex: str, replacement: str, case: str) -> Rule:
    regex, replacement = regex.replace("\\/", "/"), replacement.replace("\\/", "/")
    try:
        pattern = re.compile(regex)
    except re.error as error:
        raise ConfigError(f"ssl.principal.mapping.rules: {regex!r}: {error}") from None
    groups = [int(one[1]) for one in _REFERENCE.finditer(replacement) if one[1]]
    if any(number > pattern.groups for number in groups):
        raise ConfigError(f"ssl.principal.mapping.rules: {replacement!r} names a group that {regex!r} has not")
    return Rule(pattern, replacement, case)


def distinguished_name(der: bytes) -> str:
    """Return the subject of a certificate as Java writes it: most specific attribute first, no blanks after commas.

    Raises:
        LoginFailed: the certificate cannot be read.
    """
    try:
        return subject_of(x509.load_der_x509_certificate(der))
    except (ValueError, TypeError) as error:
        raise LoginFailed(f"certificate cannot be read: {error}") from None


def subject_of(certificate: x509.Certificate) -> str:
    """Return the subject of *certificate*, as `distinguished_name` does.

    Raises:
        ValueError, TypeError: the subject cannot be read.
    """
    return ",".join("+".join(map(_attribute, part)) for part in reversed(certificate.subject.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid: ObjectIdentifier = attribute.oid
    name, value = _NAMES.get(oid), attribute.value
    if name is not None and isinstance(value, str):
        return f"{name}={_escaped(value)}"
    raw = value if isinstance(value, bytes) else value.encode(_encoding(attribute._type))
    size = len(raw)
    length = bytes([size]) if size < 128 else _long_length(size)
    return f"{oid.dotted_string}=#{(bytes([attribute._type.value]) + length + raw).hex()}"


def _encoding(kind: _ASN1Type) -> str:
    return {_ASN1Type.BMPString: "utf-16-be", _ASN1Type.UniversalString: "utf-32-be"}.get(kind, "utf-8")


def _long_length(size: int) -> bytes:
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(digits)]) + digits


def _escaped(value: str) -> str:
    text = _SPECIAL.sub(r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    if text.endswith(" ") and len(value) > 1:
        text = text[:-1] + "\\ "
    return text


def user_of(der: bytes, rules: Sequence[Rule]) -> str:
    """Return the name of the principal that shows this certificate.

    Raises:
        LoginFailed: no rule matches its name, or the result is not allowed.
    """
    name = distinguished_name(der)
    for rule in rules:
        user = rule.apply(name)
        if user is not None:
            return check_name(user)
    raise LoginFailed(f"no rule of ssl.principal.mapping.rules matches {name[:256]!r}")
