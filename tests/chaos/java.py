"""The commands of Apache Kafka's own clients, `ChaosClient.java`."""

import subprocess
from pathlib import Path

from tests.servers.kafka import fetch
from tests.servers.maven import classpath

_SOURCE = Path(__file__).with_name("ChaosClient.java")
_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")


class JavaClients:
    """`ChaosClient` compiled into *directory*; Kafka's jars are fetched first if need be."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        path = classpath(fetch(), without="logback")
        # The compiler as a module of the runtime: the package with the command `javac` is not in local/packages.txt.
        compiler = ["java", "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        subprocess.run([*compiler, "-cp", path, "-d", str(directory), str(_SOURCE)], check=True)
        (directory / "log4j.properties").write_text(_LOG4J)
        self._path = f"{path}:{directory}"

    def command(self, *arguments: str) -> list[str]:
        """Return the command of a client."""
        return ["java", *_JVM, "-cp", self._path, "ChaosClient", *arguments]


_LOG4J = """\
log4j.rootLogger=WARN, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.target=System.err
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{ISO8601} %p %c{1} %m%n
"""
