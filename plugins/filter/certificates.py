"""The filters by which role `certificates` judges certificates and signs requests, without a program of its own."""

import datetime as dt
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# Ansible loads this file by itself; the checkout that it belongs to need not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pylog.ops.certificates import Holder, expiries, problems, signed_certificate


def _holder(entry: Mapping[str, Any]) -> Holder:
    texts = {key: str(entry[key]) for key in ("name", "common_name", "path", "user", "home")}
    return Holder(**texts, names=tuple(map(str, entry["names"])))


def certificate_problems(
    pem: str, entry: Mapping[str, Any], authority: str, renew_days: int, is_given: bool = False
) -> list[str]:
    """Return why the certificate of an entry of preflight's list of certificates has to be replaced."""
    now = dt.datetime.now(dt.UTC)
    return problems(
        str(pem),
        authority_pem=str(authority),
        holder=_holder(entry),
        now=now,
        renew_days=int(renew_days),
        is_given=is_given,
    )


def signed_request(request: str, entry: Mapping[str, Any], authority: str, key: str, days: int) -> str:
    """Return the certificate for a host's request."""
    now = dt.datetime.now(dt.UTC)
    return signed_certificate(
        str(request), authority_pem=str(authority), key_pem=str(key), holder=_holder(entry), now=now, days=int(days)
    )


def certificate_expiries(pems: Mapping[str, str], paths: Iterable[str]) -> str:
    """Return what the node exporter shows of the certificates at *paths*, of those that a host has."""
    return expiries({str(path): str(pems[path]) for path in paths if path in pems})


def client_properties(user: str, passwords: Mapping[str, str]) -> dict[str, str]:
    """Return the properties, by librdkafka's names, with which a program of the bundle logs in as *user*."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": str(user),
        "sasl.password": str(passwords[user]),
        "ssl.ca.location": "/etc/pylog/ca.pem",
    }


class FilterModule:
    """What Ansible looks for in this file."""

    def filters(self) -> dict[str, Any]:
        """Return name -> filter."""
        return {
            "certificate_expiries": certificate_expiries,
            "certificate_problems": certificate_problems,
            "client_properties": client_properties,
            "signed_request": signed_request,
        }
