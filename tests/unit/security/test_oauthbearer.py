"""OAUTHBEARER with tokens that are signed here."""

import base64
import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from pylog.broker.token_keys import REFRESH_S, RETRY_S, TokenKeys
from pylog.errors import ConfigError
from pylog.security.exchange import LoginFailed
from pylog.security.oauthbearer import OAuthBearerServer, TokenRules, UnknownKey, check_token, parse_keys

NOW_S = 1_800_000_000
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
STRANGER = ECKey.generate_key("P-256", {"kid": "ec"})
RULES = TokenRules(audiences=("pylog", "kafka"), issuer="https://provider")
CLAIMS = {"sub": "alice", "aud": "pylog", "iss": "https://provider", "iat": NOW_S - 10, "exp": NOW_S + 600}


def document(*keys: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys]}


KEYS = parse_keys(document(RSA, EC))


def token(key: Any = EC, algorithm: str = "ES256", kid: str | None = "ec", **claims: object) -> str:
    header = {"alg": algorithm} | ({"kid": kid} if kid else {})
    merged = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(header, merged, key, algorithms=[algorithm])


def unsigned(header: Mapping[str, object]) -> str:
    parts = (json.dumps(header), json.dumps(CLAIMS))
    return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts) + "."


@pytest.mark.parametrize(
    "good", [token(), token(RSA, "RS256", "rsa"), token(RSA, "PS512", "rsa"), token(aud=["x", "kafka"])]
)
def test_a_token_names_its_user_and_its_end(good: str) -> None:
    assert check_token(good, KEYS, RULES, NOW_S) == ("alice", NOW_S + 600)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 31},
        {"exp": None},
        {"exp": "never"},
        {"iat": None},
        {"iat": NOW_S + 60},
        {"nbf": NOW_S + 60},
        {"aud": "other"},
        {"aud": None},
        {"iss": "https://other"},
        {"iss": None},
        {"sub": None},
        {"sub": 7},
        {"sub": ""},
        {"sub": "*"},
        {"sub": "ANONYMOUS"},
    ],
)
def test_a_wrong_claim_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(LoginFailed):
        check_token(token(**claims), KEYS, RULES, NOW_S)


def test_clocks_may_differ_a_little() -> None:
    assert check_token(token(exp=NOW_S - 20, iat=NOW_S + 20), KEYS, RULES, NOW_S)[0] == "alice"


def test_a_token_without_a_signature_is_refused() -> None:
    for header in ({"alg": "none"}, {"alg": "none", "kid": "ec"}, {"alg": "None", "kid": "rsa"}, {"alg": "ES256"}, {}):
        with pytest.raises(LoginFailed):
            check_token(unsigned(header), KEYS, RULES, NOW_S)


def test_a_signature_by_a_public_key_as_secret_is_refused() -> None:
    # Whoever has the public key, which is everybody, could else sign with it by HMAC.
    public = RSA.as_pem(private=False)
    for header in ({"alg": "HS256", "kid": "rsa"}, {"alg": "HS256"}):
        signed = unsigned(header).rstrip(".")
        signature = base64.urlsafe_b64encode(hmac.digest(public, signed.encode(), "sha256")).decode().rstrip("=")
        with pytest.raises(LoginFailed):
            check_token(f"{signed}.{signature}", KEYS, RULES, NOW_S)


def test_a_foreign_or_damaged_signature_is_refused() -> None:
    with pytest.raises(LoginFailed):
        check_token(token(STRANGER), KEYS, RULES, NOW_S)
    head, body, signature = token().split(".")
    other = token(sub="bob").split(".")[1]
    for damaged in (f"{head}.{other}.{signature}", f"{head}.{body}.{signature[:-4]}AAAA", f"{head}.{body}.", "a.b.c"):
        with pytest.raises(LoginFailed):
            check_token(damaged, KEYS, RULES, NOW_S)


def test_an_unknown_key_is_told_apart() -> None:
    with pytest.raises(UnknownKey):
        check_token(token(kid="new"), KEYS, RULES, NOW_S)


@pytest.mark.parametrize("wrong", [{}, {"keys": []}, {"keys": "x"}, {"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}, []])
def test_a_document_without_public_keys_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError):
        parse_keys(wrong)


def test_shared_secrets_in_a_document_are_passed_over() -> None:
    keys = parse_keys({"keys": [*document(EC)["keys"], {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}]})
    assert [one.kid for one in keys.keys] == ["ec"]


def server() -> OAuthBearerServer:
    return OAuthBearerServer(lambda text: check_token(text, KEYS, RULES, NOW_S))


def test_the_exchange_ends_after_one_message() -> None:
    step = server().step(f"n,,\x01auth=Bearer {token()}\x01\x01".encode())
    assert (step.reply, step.user, step.expires_at_s) == (b"", "alice", NOW_S + 600)
    assert server().step(f"n,a=alice,\x01host=h\x01auth=bearer {token()}\x01\x01".encode()).user == "alice"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "n,,",
        "n,,\x01\x01",
        "n,,\x01auth=Basic abc\x01\x01",
        "n,,\x01auth=Bearer \x01\x01",
        f"n,,\x01auth=Bearer {token()}\x01",
        f"y,,\x01auth=Bearer {token()}\x01\x01",
        f"n,a=bob,\x01auth=Bearer {token()}\x01\x01",
        f"n,,\x01auth=Bearer {token()}\x01auth=Bearer {token()}\x01\x01",
        f"n,,\x01auth=Bearer {token(exp=NOW_S - 100)}\x01\x01",
        "n,,\x01auth=Bearer " + "a" * 70_000 + "\x01\x01",
    ],
)
def test_a_refused_token_is_answered_before_the_login_fails(message: str) -> None:
    exchange = server()
    step = exchange.step(message.encode())
    assert (json.loads(step.reply)["status"], step.user) == ("invalid_token", None)
    with pytest.raises(LoginFailed):
        exchange.step(b"\x01")


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_new_keys_are_read_when_a_token_names_one_but_not_all_the_time(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    new = ECKey.generate_key("P-256", {"kid": "new"})
    path.write_text(json.dumps(document(EC)))
    keys = TokenKeys(f"file://{path}", now_s=clock)
    assert keys.check(token(), RULES, NOW_S)[0] == "alice"
    path.write_text(json.dumps(document(new)))
    with pytest.raises(UnknownKey):
        keys.check(token(new, kid="new"), RULES, NOW_S)  # read a moment ago
    clock.now_s = RETRY_S
    assert keys.check(token(new, kid="new"), RULES, NOW_S)[0] == "alice"


def test_old_keys_stay_when_new_ones_cannot_be_read(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    keys = TokenKeys(f"file://{path}", now_s=clock)
    with pytest.raises(LoginFailed, match="could not be read"):
        keys.check(token(), RULES, NOW_S)
    path.write_text(json.dumps(document(EC)))
    clock.now_s = RETRY_S
    keys.check(token(), RULES, NOW_S)
    path.write_text("noise")
    clock.now_s = 2 * REFRESH_S
    assert keys.check(token(), RULES, NOW_S)[0] == "alice"


def test_a_key_that_was_taken_back_ends(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    path.write_text(json.dumps(document(EC)))
    keys = TokenKeys(f"file://{path}", now_s=clock)
    keys.check(token(), RULES, NOW_S)
    path.write_text(json.dumps(document(RSA, OKPKey.generate_key("Ed25519", {"kid": "ed"}))))
    clock.now_s = REFRESH_S
    with pytest.raises(LoginFailed):
        keys.check(token(), RULES, NOW_S)
