"""One module a client, all behind the same two verbs, so that every test runs with every client."""

from tests.interop.clients.aio import Aiokafka
from tests.interop.clients.client import Client, Record
from tests.interop.clients.confluent import Confluent
from tests.interop.clients.java import JavaConsole
from tests.interop.clients.kcat import Kcat
from tests.interop.clients.python import KafkaPython

CLIENTS: tuple[Client, ...] = (Kcat(), Confluent(), KafkaPython(), Aiokafka(), JavaConsole())

__all__ = ["CLIENTS", "Aiokafka", "Client", "Confluent", "JavaConsole", "KafkaPython", "Kcat", "Record"]
