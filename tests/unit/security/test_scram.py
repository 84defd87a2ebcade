"""SCRAM against the vectors of RFC 7677, and every message that must be refused."""

import base64
import hashlib
import hmac
from operator import xor

import pytest

from pylog.errors import ConfigError
from pylog.security.exchange import INVALID_CREDENTIALS, LoginFailed
from pylog.security.scram import (
    SCRAM_MECHANISMS,
    CredentialSource,
    ScramClient,
    ScramCredential,
    ScramMechanism,
    ScramServer,
)

# RFC 7677, section 3.
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
RFC_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
RFC_SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
RFC_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
RFC_SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="

SHA_256 = ScramMechanism.SHA_256
USERS = {
    ("user", SHA_256): ScramCredential.from_password(SHA_256, "pencil", salt=RFC_SALT),
    ("a,b=c", SHA_256): ScramCredential.from_password(SHA_256, "secret"),
    ("weak", SHA_256): ScramCredential.from_password(SHA_256, "pencil", iterations=1000),
    ("big", ScramMechanism.SHA_512): ScramCredential.from_password(ScramMechanism.SHA_512, "long", 8192),
}
SOURCE = CredentialSource(lambda user, mechanism: USERS.get((user, mechanism)), b"secret of the cluster")


def server(mechanism: ScramMechanism = SHA_256, nonce: str = RFC_SERVER_NONCE) -> ScramServer:
    return ScramServer(mechanism, SOURCE, lambda: nonce)


def begun() -> ScramServer:
    exchange = server()
    exchange.step(RFC_FIRST)
    return exchange


def refused(exchange: ScramServer, message: bytes) -> LoginFailed:
    with pytest.raises(LoginFailed) as caught:
        exchange.step(message)
    return caught.value


def login(user: str, password: str, mechanism: ScramMechanism = SHA_256) -> str | None:
    """Let our client log in to our server."""
    client, exchange = ScramClient(mechanism, user, password), ScramServer(mechanism, SOURCE)
    last = exchange.step(client.final(exchange.step(client.first()).reply))
    client.finish(last.reply)
    return last.user


def test_the_exchange_of_the_rfc() -> None:
    exchange = server()
    assert exchange.step(RFC_FIRST).reply == RFC_SERVER_FIRST
    last = exchange.step(RFC_FINAL)
    assert (last.reply, last.user) == (RFC_SERVER_FINAL, "user")


def test_the_client_of_the_rfc() -> None:
    client = ScramClient(SHA_256, "user", "pencil", lambda: RFC_CLIENT_NONCE)
    assert client.first() == RFC_FIRST
    assert client.final(RFC_SERVER_FIRST) == RFC_FINAL
    client.finish(RFC_SERVER_FINAL)


@pytest.mark.parametrize(
    ("user", "password", "mechanism"),
    [("user", "pencil", SHA_256), ("a,b=c", "secret", SHA_256), ("big", "long", ScramMechanism.SHA_512)],
)
def test_both_of_our_sides_agree(user: str, password: str, mechanism: ScramMechanism) -> None:
    assert login(user, password, mechanism) == user


def test_a_wrong_password_an_unknown_user_and_a_weak_credential_look_the_same() -> None:
    faults, lengths = set(), set()
    for user in ("user", "nobody", "weak"):
        client, exchange = ScramClient(SHA_256, user, "wrong"), ScramServer(SHA_256, SOURCE)
        first = exchange.step(client.first()).reply
        lengths.add(len(first))
        faults.add(refused(exchange, client.final(first)).public)
    assert faults == {INVALID_CREDENTIALS}
    assert len(lengths) == 1


def test_a_weak_credential_does_not_log_in_with_its_password() -> None:
    with pytest.raises(LoginFailed):
        login("weak", "pencil")


def test_an_unknown_user_has_a_salt_that_stays_and_differs_from_others() -> None:
    def salt(user: str, source: CredentialSource = SOURCE) -> bytes:
        return source.credential(user, SHA_256)[0].salt

    assert salt("nobody") == salt("nobody")
    assert salt("nobody") != salt("nobody else")
    assert salt("nobody") != salt("nobody", CredentialSource(lambda user, mechanism: None, b"another secret"))


@pytest.mark.parametrize(
    "nonce",
    [
        "rOprNGfwEbeRWgbNEkqO",
        "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k",
        "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0x",
        "x" + "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        2 * "rOprNGfwEbeRWgbNEkqO" + "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "forged",
    ],
)
def test_a_nonce_that_is_not_exactly_the_sent_one_is_refused(nonce: str) -> None:
    final = RFC_FINAL.replace(b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", nonce.encode())
    assert "nonce" in str(refused(begun(), final))


def test_old_librdkafkas_nonce_with_the_clients_part_twice_is_taken() -> None:
    without_proof = f"c=biws,r={RFC_CLIENT_NONCE}{RFC_CLIENT_NONCE}{RFC_SERVER_NONCE}"
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", RFC_SALT, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = b",".join([RFC_FIRST.removeprefix(b"n,,"), RFC_SERVER_FIRST, without_proof.encode()])
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(map(xor, client_key, signature))).decode()
    assert begun().step(f"{without_proof},p={proof}".encode()).user == "user"
    refused(begun(), f"{without_proof},p={proof.swapcase()}".encode())


def test_the_proof_of_an_exchange_with_another_nonce_is_refused() -> None:
    # What an eavesdropper sends again: a right proof, for the nonce of an earlier login.
    exchange = server(nonce="another")
    exchange.step(RFC_FIRST)
    refused(exchange, RFC_FINAL.replace(RFC_SERVER_NONCE.encode(), b"another"))


@pytest.mark.parametrize("binding", ["eSws", "biwsYQ==", "bixhPXVzZXIs", "!", "biw"])
def test_a_channel_binding_other_than_that_of_the_first_message_is_refused(binding: str) -> None:
    refused(begun(), RFC_FINAL.replace(b"c=biws", b"c=" + binding.encode()))


@pytest.mark.parametrize("proof", ["", "AAAA", "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVU=", "=", "dHzb,x=y"])
def test_a_wrong_proof_is_refused(proof: str) -> None:
    refused(begun(), RFC_FINAL[: RFC_FINAL.index(b"p=")] + b"p=" + proof.encode())


def test_every_flipped_bit_of_the_proof_is_refused() -> None:
    proof = base64.b64decode(RFC_FINAL[RFC_FINAL.index(b"p=") + 2 :])
    for bit in range(len(proof) * 8):
        wrong = (int.from_bytes(proof, "big") ^ (1 << bit)).to_bytes(len(proof), "big")
        refused(begun(), RFC_FINAL[: RFC_FINAL.index(b"p=")] + b"p=" + base64.b64encode(wrong))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=user",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"y,,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=ext,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2c,r=abc",
        b"n,,n=us\xc3\xa9r,r=abc",
        b"n,,n=us\x00er,r=abc",
        b"n,,n=user,r=a\x01b",
        b"n,,n=user,r=abc\n",
        b"n,,n=*,r=abc",
        b"n,,n=ANONYMOUS,r=abc",
        b"n,,n=" + b"u" * 257 + b",r=abc",
        b"n,,n=user,r=" + b"a" * 1025,
        b"\xff\xfe",
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    refused(server(), message)


def test_the_authorization_id_must_be_the_user() -> None:
    assert "authorization id" in refused(server(), b"n,a=admin,n=user,r=abc").public
    assert server().step(b"n,a=user,n=user,r=abc").reply.startswith(b"r=abc")


def test_extensions_are_ignored_but_a_delegation_token_is_refused() -> None:
    assert server().step(b"n,,n=user,r=abc,tokenauth=false,x=y").reply.startswith(b"r=abc")
    assert "Delegation" in refused(server(), b"n,,n=user,r=abc,tokenauth=true").public


def test_nothing_follows_the_end() -> None:
    exchange = begun()
    exchange.step(RFC_FINAL)
    refused(exchange, RFC_FINAL)
    failed = begun()
    refused(failed, b"c=biws")
    refused(failed, RFC_FINAL)


@pytest.mark.parametrize(
    "message",
    [
        b"r=foreign,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1",
        b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=99999999",
        b"e=unknown-user",
        b"\xff",
    ],
)
def test_our_client_refuses_a_server_that_cheats(message: bytes) -> None:
    with pytest.raises(LoginFailed):
        ScramClient(SHA_256, "user", "pencil", lambda: RFC_CLIENT_NONCE).final(message)


def test_our_client_refuses_a_server_that_does_not_know_the_user() -> None:
    client = ScramClient(SHA_256, "user", "pencil", lambda: RFC_CLIENT_NONCE)
    with pytest.raises(LoginFailed):
        client.finish(b"v=")
    client.final(RFC_SERVER_FIRST)
    with pytest.raises(LoginFailed):
        client.finish(b"v=AAAA")


def test_a_credential_is_written_as_kafka_writes_it() -> None:
    credential = USERS["user", SHA_256]
    text = credential.text()
    assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
    assert text.endswith(",iterations=4096")
    assert ScramCredential.parse(SHA_256, text) == credential
    assert credential.is_password("pencil")
    assert not credential.is_password("pencil ")


def test_a_credential_shows_no_key() -> None:
    credential = USERS["user", SHA_256]
    assert repr(credential.stored_key) not in repr(credential)
    assert "stored_key" not in repr(credential)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=,stored_key=,server_key=,iterations=4096",
        "salt=YQ==,stored_key=YQ==,server_key=YQ==,iterations=4096",
        "salt=YQ==,iterations=4096",
        USERS["user", SHA_256].text().replace("4096", "many"),
        USERS["big", ScramMechanism.SHA_512].text(),
    ],
)
def test_what_is_no_credential_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ScramCredential.parse(SHA_256, text)
    assert "YQ==" not in str(caught.value)


def test_mechanisms_have_the_names_of_sasl() -> None:
    assert list(SCRAM_MECHANISMS) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
