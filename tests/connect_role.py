"""What role `connect` would write to a host, rendered by Ansible itself, and nothing else of the role."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
ROLE = ROOT / "roles" / "connect"
FACTS = (
    "__connect_document",
    "__connect_differs",
    "__connect_former",
    "__connect_rest",
    "__connect_failed",
    "__connect_locks",
)
_HOST: dict[str, Any] = {
    "pylog_datacenter": "live",
    "connect_templates": str(ROOT / "templates"),
    "ansible_managed": "managed",
    "__connect_packed": {"stdout": '{"name": "0123456789", "archive": "/a/connect-0123456789.tar"}'},
    "__release_name": "0.2.0-abc",
    "__preflight_host": {"files": {}, "users": {"pylog-connect": []}, "settled_units": []},
    "__preflight_addresses": {"host": {"localhost": "192.0.2.7"}, "brokers": {"localhost": ["192.0.2.1:9092"]}},
    "__preflight_logins": [],
    "__preflight_stages": {"live": {"programs": "open"}},
}


def rendered(directory: Path, given: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return name -> text of each file, and the variables of the role in `FACTS`.

    Args:
        directory: an empty one.
        given: variables of the host, over those of one with a broker that nobody secured.
    """
    files = "{{ __connect_files + (__connect_units | map('regex_replace', '^', '/etc/systemd/system/') | list) }}"
    content = "{{ lookup('rendered', connect_templates ~ item ~ '.j2') }}"
    names = {name: name for name in FACTS} | {
        # As roles `topics` and `firewall` and the playbooks ask.
        "topics": "groups['pylog_connect'] | map('extract', hostvars) | list | workers_topics('live')",
        "workers": "groups['pylog_connect'] | sharing_workers(hostvars, inventory_hostname)",
    }
    facts = "{{ {" + ", ".join(f"'{name}': {says}" for name, says in names.items()) + "} | to_json }}"
    play = {
        "hosts": "all",
        "connection": "local",
        "gather_facts": False,
        "become": False,
        "vars_files": [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")],
        "tasks": [
            {
                "ansible.builtin.copy": {"content": content, "dest": f"{directory}/{{{{ item | basename }}}}"},
                "loop": files,
            },
            {"ansible.builtin.copy": {"content": facts, "dest": f"{directory}/facts.json"}},
        ],
    }
    inventory: dict[str, Any] = {
        "all": {"children": {name: {"hosts": {"localhost": {}}} for name in ("live", "pylog_broker", "pylog_connect")}}
    }
    (directory / "play.yml").write_text(yaml.safe_dump([play]))
    (directory / "hosts.yml").write_text(yaml.safe_dump(inventory))
    (directory / "vars.json").write_text(json.dumps(_HOST | dict(given)))
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(directory / "hosts.yml")]
    command += [str(directory / "play.yml"), "-e", f"@{directory / 'vars.json'}"]
    plain = os.environ | {"ANSIBLE_FORCE_COLOR": "0"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=plain)
    assert done.returncode == 0, done.stdout + done.stderr
    there = [path for path in directory.iterdir() if path.suffix in (".properties", ".service")]
    return {path.name: path.read_text() for path in there}, json.loads((directory / "facts.json").read_text())
