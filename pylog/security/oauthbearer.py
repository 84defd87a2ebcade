"""OAUTHBEARER: the client shows a token that an identity provider has signed.

message => "n," ["a=" authzid] "," SOH *(key "=" value SOH) SOH         (one key is auth, its value "Bearer " token)

Only signatures by asymmetric keys count: no token without one, and none by a shared secret.  A token that is refused is
answered by a JSON document first, which the client acknowledges; then the login fails.

Source: RFC 7628, KIP-255, KIP-768.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from pylog.errors import ConfigError
from pylog.security.exchange import LoginFailed, Step, check_name

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"]
"""Signatures that are accepted."""

MAX_TOKEN_BYTES = 64 * 1024

_MESSAGE = re.compile(r"n,(?:a=([^,\x01]*))?,\x01((?:[A-Za-z]+=[\x20-\x7e\t\r\n]*\x01)+)\x01")
_BEARER = re.compile(r"(?i:bearer) +([A-Za-z0-9._~+/-]+=*)")
_REFUSAL = b'{"status":"invalid_token"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token must say.

    Attributes:
        audiences: the token must name one of these.
        issuer: the token must name this one; any if "".
        user_claim: which claim is the user's name.
        skew_s: by how much the provider's clock may differ.
    """

    audiences: tuple[str, ...]
    issuer: str = ""
    user_claim: str = "sub"
    skew_s: int = 30


class UnknownKey(LoginFailed):
    """The token is signed by a key that is not among those known; newer ones may have it."""


def parse_keys(document: Mapping[str, Any]) -> KeySet:
    """Return the public keys of a JWKS document.

    Raises:
        ConfigError: it has none that can be used.
    """
    try:
        usable = [one for one in document["keys"] if one.get("kty") in ("RSA", "EC", "OKP")]
        keys = KeySet.import_key_set({"keys": usable})
    except (JoseError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"no set of keys: {type(error).__name__}: {error}") from None
    if not keys.keys:
        raise ConfigError("the set has no key of type RSA, EC or OKP")
    return keys


def check_token(token: str, keys: KeySet, rules: TokenRules, now_s: float) -> tuple[str, float]:
    """Return the user whom a token names, and when the token expires, in seconds since 1970.

    Raises:
        UnknownKey: none of the keys is the one that the token names.
        LoginFailed: signature or claims are wrong.
    """
    try:
        header = jws.extract_compact(token.encode()).headers()
    except (JoseError, ValueError, KeyError, AttributeError, TypeError):
        raise LoginFailed("malformed token") from None
    kid = header.get("kid")
    if kid is not None and all(one.kid != kid for one in keys.keys):
        raise UnknownKey(f"token is signed by unknown key {str(kid)[:100]!r}")
    try:
        claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
        _registry(rules, now_s).validate(claims)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise LoginFailed(f"token refused: {type(error).__name__}: {str(error)[:200]}") from None
    user, expires_s = claims.get(rules.user_claim), claims["exp"]
    if not isinstance(user, str) or isinstance(expires_s, bool) or not isinstance(expires_s, int | float):
        raise LoginFailed(f"token has no {rules.user_claim}, or its exp is no number")
    return check_name(user), float(expires_s)


def _registry(rules: TokenRules, now_s: float) -> jwt.JWTClaimsRegistry:
    options: dict[str, Any] = {
        "exp": {"essential": True},
        "iat": {"essential": True},
        "aud": {"essential": True, "values": list(rules.audiences)},
    }
    if rules.issuer:
        options["iss"] = {"essential": True, "value": rules.issuer}
    return jwt.JWTClaimsRegistry(now=int(now_s), leeway=rules.skew_s, **options)


CheckToken = Callable[[str], tuple[str, float]]
"""Returns user and expiry of a token, or raises LoginFailed; may wait for the provider's keys."""


class OAuthBearerServer:
    """The server's side of one login."""

    is_slow: ClassVar[bool] = True  # a signature takes up to a millisecond, fetching keys much longer

    def __init__(self, check: CheckToken) -> None:
        self._check = check
        self._fault: LoginFailed | None = None

    def step(self, message: bytes) -> Step:
        """Answer the token, or the acknowledgement of its refusal; see `Exchange.step`."""
        if self._fault is not None:
            raise self._fault
        try:
            user, expires_s = self._user_of(message)
        except LoginFailed as error:
            self._fault = error
            return Step(_REFUSAL)
        return Step(b"", user, expires_s)

    def _user_of(self, message: bytes) -> tuple[str, float]:
        if len(message) > MAX_TOKEN_BYTES:
            raise LoginFailed(f"message of {len(message)} bytes")
        found = _MESSAGE.fullmatch(message.decode("latin-1"))
        if found is None:
            raise LoginFailed("malformed message")
        values = [part.partition("=")[2] for part in found[2].split("\x01") if part.startswith("auth=")]
        bearer = _BEARER.fullmatch(values[0]) if len(values) == 1 else None
        if bearer is None:
            raise LoginFailed("message without exactly one bearer token")
        user, expires_s = self._check(bearer[1])
        if found[1] and found[1] != user:
            raise LoginFailed(f"authorization id {found[1][:256]!r} of user {user!r}")
        return user, expires_s
