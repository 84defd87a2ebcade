"""By which stage roles write files: at both ends and at each step between, and what stops a play half way."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.x509.oid import NameOID

from pylog.config import load_broker_config
from pylog.ops import host
from pylog.ops.migration import LAST, STEPS, Stage, Turn, stage_at
from pylog.ops.preflight import Host, open_consoles, standings_of
from pylog.ops.securing import Request, Standing, standings, turn_of, whom_it_cuts_off
from pylog.ops.zoo_cfg import problems
from tests import securing
from tests.servers.certificates import Authority

ROOT = Path(__file__).resolve().parents[3]
INSTANCE = {"id": 7, "port": 9092, "internal_port": 9192, "metrics_port": 9400, "data_dir": "/d/7"}
BESIDE = INSTANCE | {"secured_port": 9093}
INDEX = {step.name: number for number, step in enumerate(STEPS)}
OPEN_BROKER = """\
# managed
version: 1
broker_id: 7
listeners:
  client:
    host: "0.0.0.0"
    port: 9092
    advertised_host: "192.0.2.1"
    advertised_port: 9092
  internal:
    host: "0.0.0.0"
    port: 9192
    advertised_host: "192.0.2.1"
data_dir: "/d/7"
admin_socket: /run/pylog/broker-7.sock
metrics_listen: "0.0.0.0:9400"
store:
  kind: zookeeper
  hosts: "192.0.2.1:2181"
  session_timeout_ms: 6000
cluster_secret_file: /etc/pylog/cluster.secret
config:
  num.partitions: 4
"""
SECURED_BROKER = """\
# managed
version: 1
broker_id: 7
listeners:
  client:
    host: "0.0.0.0"
    port: 9092
    advertised_host: "192.0.2.1"
    advertised_port: 9092
    security.protocol: SASL_SSL
    ssl.keystore.location: /etc/pylog/tls.pem
    connections.max.reauth.ms: 3600000
  internal:
    host: "0.0.0.0"
    port: 9192
    advertised_host: "192.0.2.1"
    security.protocol: SSL
    ssl.keystore.location: /etc/pylog/tls.pem
    ssl.truststore.location: /etc/pylog/ca.pem
data_dir: "/d/7"
admin_socket: /run/pylog/broker-7.sock
metrics_listen: "0.0.0.0:9400"
# Read by whoever shows a certificate of the authority.
metrics_security:
  ssl.keystore.location: /etc/pylog/metrics.pem
  ssl.truststore.location: /etc/pylog/ca.pem
store:
  kind: zookeeper
  hosts: "192.0.2.1:2181"
  session_timeout_ms: 6000
  zookeeper.acl.owners: "x509:CN=pylog"
  zookeeper.set.acl: "true"
  zookeeper.ssl.client.enable: "true"
  zookeeper.ssl.keystore.location: "/etc/pylog/tls.pem"
  zookeeper.ssl.truststore.location: "/etc/pylog/ca.pem"
cluster_secret_file: /etc/pylog/cluster.secret
config:
  authorizer.class.name: "kafka.security.authorizer.AclAuthorizer"
  num.partitions: 4
  super.users: "User:pylog-admin"
"""
OPEN_SERVER = """\
# managed
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/var/lib/pylog-zookeeper
clientPort=2181
maxClientCnxns=200
autopurge.purgeInterval=24
autopurge.snapRetainCount=3
admin.enableServer=false
4lw.commands.whitelist=mntr
"""
SECURED_SERVER = """\
# managed
tickTime=2000
initLimit=10
syncLimit=5
dataDir=/var/lib/pylog-zookeeper
# The clients' port takes TLS alone, from whoever has a certificate of the authority: strangers do not get further.
secureClientPort=2181
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
enforce.auth.enabled=true
enforce.auth.schemes=x509
sslQuorum=true
sslQuorumReloadCertFiles=true
ssl.keyStore.location=/etc/pylog-zookeeper/tls.pem
ssl.keyStore.type=PEM
ssl.trustStore.location=/etc/pylog-zookeeper/ca.pem
ssl.trustStore.type=PEM
ssl.enabledProtocols=TLSv1.2,TLSv1.3
ssl.clientAuth=need
ssl.quorum.keyStore.location=/etc/pylog-zookeeper/tls.pem
ssl.quorum.keyStore.type=PEM
ssl.quorum.trustStore.location=/etc/pylog-zookeeper/ca.pem
ssl.quorum.trustStore.type=PEM
ssl.quorum.enabledProtocols=TLSv1.2,TLSv1.3
ssl.quorum.clientAuth=need
maxClientCnxns=200
autopurge.purgeInterval=24
autopurge.snapRetainCount=3
admin.enableServer=false
4lw.commands.whitelist=mntr
"""


def broker_file(done: int, instance: dict[str, Any] = BESIDE) -> str:
    """What role `broker` writes after *done* steps."""
    return securing.broker_file(stage_at(STEPS, done), instance, address="192.0.2.1", store="192.0.2.1:2181")


def server_file(done: int) -> str:
    """What role `zookeeper` writes after *done* steps."""
    return securing.server_file(stage_at(STEPS, done))


def test_files_at_either_end_are_those_of_datacenters_that_never_migrate() -> None:
    assert (broker_file(0, INSTANCE), broker_file(0)) == (OPEN_BROKER, OPEN_BROKER)
    assert broker_file(LAST, INSTANCE) == SECURED_BROKER
    assert (server_file(0), server_file(LAST)) == (OPEN_SERVER, SECURED_SERVER)


@pytest.mark.parametrize("done", range(LAST + 1))
def test_a_broker_and_a_server_take_their_file_of_each_stage(done: int, tmp_path: Path) -> None:
    assert list(problems(server_file(done), 1)) == []
    (tmp_path / "secret").write_text("x" * 64)
    keys = Authority(tmp_path).issue("tls.pem", (NameOID.COMMON_NAME, "pylog"))
    text = broker_file(done).replace("/etc/pylog/cluster.secret", str(tmp_path / "secret"))
    for name in ("tls", "ca", "metrics"):
        text = text.replace(f"/etc/pylog/{name}.pem", str(keys))
    (tmp_path / "broker-7.yml").write_text(text)
    config = load_broker_config(tmp_path / "broker-7.yml")
    stage = stage_at(STEPS, done)
    clients = {name: one.settings.protocol.value for name, one in config.clients.items()}
    wanted = ({"client": "PLAINTEXT"} if stage.plain else {}) | ({"secured": "SASL_SSL"} if stage.secured else {})
    assert clients == wanted
    assert config.internal is not None
    accepted = {"open": {"PLAINTEXT"}, "both": {"PLAINTEXT", "SSL"}, "calls": {"PLAINTEXT", "SSL"}, "tls": {"SSL"}}
    assert {one.value for one in config.internal.settings.accepted} == accepted[stage.peers]
    assert (config.internal.settings.protocol.value == "SSL") is (stage.peers in ("calls", "tls"))
    assert (config.settings["authorizer.class.name"] != "") is (stage.rights != "off")
    assert (config.store.security.rights is not None) is (stage.store == "acl")


def test_no_step_gives_a_port_to_another_protocol() -> None:
    """A client that knows the address from before would speak plainly into TLS."""
    assert "port: 9093" not in broker_file(INDEX["listener-secured"])
    for done in range(INDEX["listener-secured"] + 1, LAST + 1):
        secured = broker_file(done).split("  secured:\n")[1].split("  internal:")[0]
        assert "port: 9093" in secured
        assert "port: 9092" not in secured


# -- where a datacenter stands ------------------------------------------------------------------------------------


def facts(broker: int, server: int, *, has_profile: bool | None = None) -> dict[str, Any]:
    """What preflight reads of a host whose broker and ZooKeeper server had so many steps."""
    configs = {"pylog-broker@7.service": broker_file(broker), "pylog-zookeeper.service": server_file(server)}
    is_in = stage_at(STEPS, broker).programs == "secured" if has_profile is None else has_profile
    profile = "# For `pylog` run by root on this host.\nproperties: SASL_SSL" if is_in else ""
    return {
        "secured": host.secured(configs), "stages": host.stages(configs, profile),
        "logins": host.login_listeners(configs),
    }  # fmt: skip


def standing(
    *found: dict[str, Any] | None,
    to: str = "",
    security: str = "sasl_ssl",
    instance: dict[str, Any] = BESIDE,
    is_encrypted: bool = True,
) -> Standing:
    names = [f"h{number}" for number in range(1, len(found) + 1)]
    given = {"pylog_security": security, "zookeeper_encrypted": is_encrypted, "pylog_broker_instances": [instance]}
    hosts = dict.fromkeys(names, given)
    groups = {"all": names, "pylog_broker": names, "pylog_zookeeper": names}
    return standings(hosts, dict(zip(names, found, strict=True)), groups, Request(to=to))["all"]


def turn(found: Standing) -> Turn:
    assert found.faults == ()
    assert found.turn is not None
    return found.turn


def test_the_files_of_each_stage_lead_through_all_steps_there_and_back() -> None:
    seen = []
    for done in range(LAST + 1):
        there = turn(standing(facts(done, done), facts(done, done), to="secured"))
        assert there.stage == stage_at(STEPS, min(done + 1, LAST))
        seen.append(there.step.name if there.step else "")
        back = turn(standing(facts(done, done), facts(done, done), to="open"))
        assert back.stage == stage_at(STEPS, max(done - 1, 0))
    assert seen == [*(step.name for step in STEPS), ""]


def test_without_a_migration_the_inventory_decides() -> None:
    assert standing({}, {}).stage == stage_at(STEPS, LAST)
    assert standing({}, {}, security="none").stage == Stage()
    assert standing(facts(0, 0), facts(0, 0), security="none").stage == Stage()
    done = standing(facts(LAST, LAST), facts(LAST, LAST))
    assert (done.stage, done.words, done.faults) == (stage_at(STEPS, LAST), "", ())


def test_a_first_deployment_that_died_before_the_brokers_goes_on_to_the_end() -> None:
    servers = {"secured": {"pylog-zookeeper.service": True}, "stages": {}}
    assert standing(servers, {}).stage == stage_at(STEPS, LAST)
    without_profile = facts(LAST, LAST, has_profile=False)
    assert standing(without_profile, {}).stage == stage_at(STEPS, LAST)


LEFT = {"secured": {}, "stages": {"profile": "programs=secured"}}
"""What preflight reads of a host whose servers were stopped, or purged, after it was secured."""


@pytest.mark.parametrize("instance", [INSTANCE, BESIDE])
def test_a_profile_that_was_left_where_no_broker_runs_says_nothing(instance: dict[str, Any]) -> None:
    for security, end in (("none", 0), ("sasl_ssl", LAST)):
        found = standing(LEFT, LEFT, security=security, instance=instance)
        assert (found.stage, found.faults, found.is_switched) == (stage_at(STEPS, end), (), False)


def test_a_profile_on_some_hosts_is_half_a_step() -> None:
    programs = INDEX["programs-secured"]
    without, with_one = (facts(programs, programs, has_profile=has_one) for has_one in (False, True))
    found = standing(without, with_one, with_one)
    assert found.faults[0][1] == (
        "step 13, programs-secured, half done: the profile for operators on h1 did not have it"
    )
    assert standing(with_one, with_one).stage == stage_at(STEPS, programs + 1)
    assert standing(without, without).stage == stage_at(STEPS, programs)


def test_a_datacenter_without_servers_is_as_its_hosts_of_the_bundle_say() -> None:
    hosts: dict[str, dict[str, Any]] = {
        "h1": {"pylog_security": "sasl_ssl", "pylog_datacenter": "live", "pylog_broker_instances": [INSTANCE]},
        "mon1": {"pylog_security": "sasl_ssl"},
        "localhost": {},
    }
    groups = {"all": ["h1", "mon1"], "pylog_broker": ["h1"], "pylog_zookeeper": ["h1"], "pylog_monitoring": ["mon1"]}
    nothing: dict[str, dict[str, Any]] = {name: {} for name in hosts}
    found = standings(hosts, nothing, groups, Request())
    assert found["all"].stage.pages == "secured"
    del hosts["mon1"]["pylog_security"]
    assert standings(hosts, nothing, groups, Request())["all"].stage == Stage()


def test_other_plays_keep_the_stage_of_a_migration_that_is_under_way() -> None:
    found = standing(facts(9, 9), facts(9, 9))
    assert (found.stage, found.faults) == (stage_at(STEPS, 9), ())
    assert found.words.startswith("all stands after step 9 of 16 (peers-call)")


def test_a_half_done_step_stops_other_plays_by_the_name_of_who_is_behind() -> None:
    found = standing(facts(8, 8), facts(9, 8))
    [fault] = found.faults
    assert "step 9, peers-call, half done: pylog-broker@7 on h1 did not have it" in fault[1]
    there, back = (turn(standing(facts(8, 8), facts(9, 8), to=to)) for to in ("secured", "open"))
    assert (there.stage, back.stage) == (stage_at(STEPS, 9), stage_at(STEPS, 8))


def test_an_inventory_that_says_open_stops_while_something_is_secured() -> None:
    [fault] = standing(facts(3, 3), facts(3, 3), security="none").faults
    assert "after step 3" in fault[1]


def test_an_open_datacenter_is_not_secured_by_another_play() -> None:
    assert standing(facts(0, 0), facts(0, 0)).is_switched
    assert standing(facts(LAST, LAST), facts(LAST, LAST), security="none").is_switched


def secured_from_the_first(**changes: Any) -> dict[str, Any]:
    """What preflight reads of a host that was deployed secured, with one port for clients."""
    configs = {"pylog-broker@7.service": broker_file(LAST, INSTANCE), "pylog-zookeeper.service": server_file(LAST)}
    configs |= changes
    return {
        "secured": host.secured(configs), "logins": host.login_listeners(configs),
        "stages": host.stages(configs, "# For `pylog` run by root on this host.\nproperties: SASL_SSL"),
    }  # fmt: skip


def test_a_host_says_where_its_clients_log_in() -> None:
    unit = "pylog-broker@7.service"
    seen = [host.login_listeners({unit: text}) for text in (broker_file(0), broker_file(13), SECURED_BROKER)]
    assert seen == [{unit: {}}, {unit: {"secured": 9093}}, {unit: {"client": 9092}}]


def test_a_second_port_is_not_for_a_cluster_that_was_secured_from_the_first() -> None:
    ran = secured_from_the_first()
    assert standing(ran, ran, instance=INSTANCE).faults == ()
    for to in ("", "secured", "open"):
        where, found, _, remedy = standing(ran, ran, to=to).faults[0]
        assert (where, found) == ("listener of broker 7 on h1", "client at port 9092 logs clients in, and would go")
        assert remedy.startswith("take secured_port out")
    [fault, _] = standing(ran, ran, to="open", instance=INSTANCE).faults
    assert (fault[0], fault[3].partition(":")[0]) == ("secured_port of broker 7 on h1", "stop the datacenter for it")


def test_a_second_port_stays_after_a_migration_and_is_not_given_to_the_open_listener() -> None:
    ran = facts(LAST, LAST)
    crossed = BESIDE | {"port": 9093, "secured_port": 9094}
    for instance in (INSTANCE, crossed):
        found = standing(ran, ran, instance=instance).faults[0]
        assert found[1] == "secured at port 9093 logs clients in, and would go"
        assert found[3].startswith("put port and secured_port back")
    assert standing(ran, ran, instance=BESIDE | {"secured_port": 9094}).faults == ()


def test_brokers_of_a_datacenter_have_a_second_port_all_or_none() -> None:
    hosts: dict[str, dict[str, Any]] = {
        name: {"pylog_security": "sasl_ssl", "pylog_broker_instances": [instance]}
        for name, instance in (("h1", BESIDE), ("h2", INSTANCE | {"id": 8}))
    }
    groups = {"all": ["h1", "h2"], "pylog_broker": ["h1", "h2"], "pylog_zookeeper": ["h1", "h2"]}
    unasked: dict[str, dict[str, Any] | None] = {"h1": None, "h2": None}
    for seen in (unasked, {"h1": facts(LAST, LAST), "h2": {}}):
        [fault] = standings(hosts, seen, groups, Request())["all"].faults
        assert fault[0] == "secured_port of broker 8 on h2"


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_zookeeper_is_not_encrypted_or_opened_beside_brokers_that_are_secured(is_encrypted: bool) -> None:
    ran = secured_from_the_first(**({"pylog-zookeeper.service": server_file(0)} if is_encrypted else {}))
    for to in ("", "secured", "open"):
        faults = standing(ran, ran, to=to, instance=INSTANCE, is_encrypted=is_encrypted).faults
        assert [fault[0] for fault in faults][-1] == "variable zookeeper_encrypted"
        assert faults[-1][3].startswith(f"put it back to {str(not is_encrypted).lower()}; to change it, stop")


def stopped(broker: int, server: int | None) -> dict[str, Any]:
    """What preflight reads of a host whose broker was stopped after so many steps, its server too where None."""
    found = facts(broker, server or 0)
    ends = {name: found["secured"].pop(name) for name in [*found["secured"]] if "broker" in name or server is None}
    return found | {"stopped": ends, "logins": {}}


@pytest.mark.parametrize("done", [6, 12])
def test_brokers_that_are_stopped_between_two_steps_stop_every_play(done: int) -> None:
    for to in ("", "secured", "open"):
        [fault] = standing(stopped(done, done), stopped(done, done), to=to).faults
        assert fault[1] == "pylog-broker@7 on h1, pylog-broker@7 on h2: stopped between two steps, while ZooKeeper runs"
    assert standing(facts(done, done), stopped(done, done)).faults == ()


def test_a_datacenter_that_was_stopped_as_a_whole_is_as_the_inventory_says() -> None:
    for security, end in (("none", 0), ("sasl_ssl", LAST)):
        found = standing(stopped(9, None), stopped(9, None), security=security)
        assert (found.stage, found.faults) == (stage_at(STEPS, end), ())
    assert standing(stopped(LAST, LAST), stopped(LAST, LAST)).faults == ()


def test_a_repair_takes_the_stage_of_brokers_that_are_stopped() -> None:
    hosts: dict[str, dict[str, Any]] = {
        name: {"pylog_security": "sasl_ssl", "pylog_broker_instances": [BESIDE]} for name in ("h1", "h2")
    }
    groups = {"all": ["h1", "h2"], "pylog_broker": ["h1", "h2"], "pylog_zookeeper": ["h1", "h2"]}
    for done, behind in ((9, 9), (9, 8)):
        seen = {"h1": stopped(done, None), "h2": stopped(behind, None)}
        found = standings(hosts, seen, groups, Request(), is_repair=True)["all"]
        assert (found.stage, found.faults) == (stage_at(STEPS, behind), ())
        assert f"after step {behind}" in found.words or "half done" in found.words


def test_a_restore_of_the_metadata_reads_the_stage_before_it_asks_brokers() -> None:
    tasks = yaml.safe_load((ROOT / "playbooks" / "restore_metadata.yml").read_text())[0]["tasks"]
    names = [task["name"] for task in tasks]
    read = names.index("Read by which stage the brokers were written")
    assert read < names.index("Learn where the brokers are reached")
    given = {"pylog_security": "sasl_ssl", "pylog_broker_instances": [BESIDE]}
    hosts = {"h1": given | {tasks[read]["register"]: {"answer": stopped(9, 9)}}}
    readable = runpy.run_path(str(ROOT / "plugins" / "filter" / "readable.py"))
    seen = readable["readable_variables"](hosts, hosts)
    groups = {"all": ["h1"], "pylog_broker": ["h1"], "pylog_zookeeper": ["h1"]}
    question = {"hosts": seen, "groups": groups, "is_repair": True}
    assert standings_of(question)["all"].stage == stage_at(STEPS, 9)


def test_a_limit_without_a_broker_of_the_datacenter_is_refused() -> None:
    live = {"pylog_security": "sasl_ssl", "pylog_datacenter": "live"}
    hosts: dict[str, dict[str, Any]] = {
        "h1": live | {"pylog_broker_instances": [BESIDE]}, "h2": live | {"pylog_broker_instances": [BESIDE]},
        "mirror1": {"pylog_datacenter": "offline"}, "ship1": {"pylog_datacenter": "offline"}, "ship2": live,
    }  # fmt: skip
    groups = {
        "all": [*hosts], "pylog_broker": ["h1", "h2"], "pylog_zookeeper": ["h1", "h2"], "pylog_mirror": ["mirror1"],
        "pylog_ship": ["ship1", "ship2"],
    }  # fmt: skip

    def fault(*asked: str, away: tuple[str, ...] = ()) -> str:
        brokers = {name: facts(9, 9) for name in ("h1", "h2")}
        seen = {name: brokers.get(name, {}) if name in asked else None for name in hosts}
        faults = standings(hosts, seen, groups, Request(), away=away)["live"].faults
        return faults[0][3] if faults else ""

    assert fault("mirror1") == fault("ship2") == "add one of h1, h2 to --limit"
    assert fault() == fault("ship1") == fault("ship2", "h1") == fault("mirror1", away=("h1", "h2")) == ""
    hosts |= {name: live | {"pylog_broker_instances": [INSTANCE]} for name in ("h1", "h2")}
    assert fault("ship2") == ""


def test_two_that_fit_no_step_are_named_and_nothing_happens() -> None:
    for to in ("", "secured", "open"):
        faults = standing(facts(7, 7), facts(10, 7), to=to).faults
        assert "pylog-broker@7 on h2 stands after step 10" in faults[-1][1]


def test_a_half_done_step_is_ended_or_undone_without_a_host_that_is_away() -> None:
    given = {"pylog_security": "sasl_ssl", "pylog_broker_instances": [BESIDE]}
    hosts = dict.fromkeys(("h1", "h2", "h3"), given)
    groups = {"all": [*hosts], "pylog_broker": [*hosts], "pylog_zookeeper": [*hosts]}

    def asked(other: int, to: str, *away: str) -> Standing:
        seen = {"h1": facts(9, 8), "h2": facts(other, 8), "h3": None}
        return standings(hosts, seen, groups, Request(to=to), away=away)["all"]

    for to, done in (("secured", 9), ("open", 8)):
        assert turn(asked(8, to, "h3")).stage == stage_at(STEPS, done)
        assert asked(8, to).faults[0][1] == "h3 not asked"
        assert asked(9, to, "h3").faults[0][1] == "h3 not asked"


def test_a_step_that_did_not_reach_the_programs_is_repeated_or_undone() -> None:
    """Its brokers all have it: what they run with does not tell it from a whole step."""

    def asked(to: str, note: str) -> Standing:
        return standing(facts(14, 14), facts(14, 14) | {"securing": note}, to=to)

    for way, note, number, done, is_again in (
        ("secured", "pages-secured secured\n", 14, 14, True),
        ("open", "pages-secured secured\n", 14, 13, False),
        ("open", "rights-enforced open\n", 15, 14, True),
        ("secured", "rights-enforced open\n", 15, 15, False),
        ("secured", "peers-call secured\n", 15, 15, False),
    ):
        found = turn(asked(way, note))
        assert (found.number, found.stage, found.is_repeated) == (number, stage_at(STEPS, done), is_again)
        assert (", again: " in found.words) is is_again
    waiting = asked("", "pages-secured secured\n")
    assert "did not come to its end" in waiting.words
    assert waiting.faults == (), "other plays go on"


def test_a_step_that_is_repeated_asks_nobody_whom_it_would_cut_off() -> None:
    found = standing(facts(LAST, LAST) | {"securing": "listener-closed secured"}, to="secured")
    assert found.position is not None
    said = turn_of(turn(found), found.position)
    assert (said["needs"], said["mark"]) == ([], "listener-closed secured")


@pytest.mark.parametrize(("to", "done"), [("secured", 0), ("open", INDEX["programs-secured"] + 1)])
def test_a_console_that_a_step_leaves_without_a_login_is_named_before_it(to: str, done: int) -> None:
    def found(stood: Standing) -> list[str]:
        host = Host(
            name="h1", variables={"pylog_security": "sasl_ssl", "console_public_url": "https://console.example"}
        )
        return [one.check for one in open_consoles([host], {"pylog_console": ["h1"]}, {"all": stood})]

    assert found(standing(facts(done, LAST if to == "open" else 0), to=to)) == ["variable console_public_url"]
    assert found(standing(facts(LAST, LAST))) == []


def test_what_a_migration_needs_is_named_before_anything_changes() -> None:
    def checks(**changes: Any) -> list[str]:
        given: dict[str, Any] = {"to": "secured", **changes}
        hosts = given.pop("hosts", (facts(0, 0), facts(0, 0)))
        return [fault[0] for fault in standing(*hosts, **given).faults]

    assert checks() == []
    assert checks(to="encrypted") == ["secure_to"]
    assert checks(security="none") == ["pylog_security of h1", "pylog_security of h2"]
    assert checks(instance=INSTANCE)[0] == "secured_port of broker 7 on h1"
    assert checks(hosts=(facts(0, 0), None)) == ["security"]
    assert checks(hosts=({}, {})) == ["security"]


def test_one_datacenter_migrates_and_another_waits_open() -> None:
    hosts = {
        name: {"pylog_security": "sasl_ssl", "pylog_datacenter": place, "pylog_broker_instances": [BESIDE]}
        for name, place in (("h1", "live"), ("h2", "offline"))
    }
    groups = {"all": ["h1", "h2"], "pylog_broker": ["h1", "h2"], "pylog_zookeeper": ["h1", "h2"]}
    seen = {"h1": facts(4, 4), "h2": facts(0, 0)}
    found = standings(hosts, seen, groups, Request(to="secured", datacenter="live"))
    assert turn(found["live"]).stage == stage_at(STEPS, 5)
    assert (found["offline"].stage, found["offline"].is_switched) == (Stage(), False)
    unnamed = standings(hosts, seen, groups, Request(to="secured"))
    assert [one.turn for one in unnamed.values()] == [None, None]


def test_a_broker_that_nobody_could_ask_is_cut_off_by_nothing() -> None:
    reading = {"brokers": {"7": {}}, "now_ms": 1_000_000}
    found = whom_it_cuts_off({"needs": ["plain_is_quiet"], "had": []}, {"h1": reading}, 60)
    assert found == ["broker 7 on h1 did not say who uses it"]
    assert whom_it_cuts_off({"needs": [], "had": []}, {"h1": reading}, 60) == []


def test_brokers_that_had_the_step_do_not_stop_a_roll_that_goes_on() -> None:
    last = LAST - 1
    found = standing(facts(last, last), facts(LAST, last), to="secured")
    assert found.position is not None
    turn_now = turn_of(turn(found), found.position)
    assert turn_now["had"] == ["pylog-broker@7 on h2"]
    silent = {"brokers": {"7": {}}, "now_ms": 1_000_000}
    assert whom_it_cuts_off(turn_now, {"h1": silent, "h2": silent}, 60) == ["broker 7 on h1 did not say who uses it"]
