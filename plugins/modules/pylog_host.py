#!/usr/bin/python
"""Ansible module: read a host that may have nothing installed, and wait for its brokers or its ZooKeeper server.

The program is `pylog/ops/host.py`, which `plugins/module_utils` links to; it needs the standard library alone.
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pylog_host import VERBS

DOCUMENTATION = """
module: pylog_host
short_description: Read what a host has and what its pylog units say
description:
  - Changes nothing, so it runs in check mode too.
  - C(brokers) and C(zookeeper) wait until all is well when I(about) names C(wait_s).
options:
  read:
    description: What to read.
    type: str
    required: true
    choices: [facts, disks, units, certificates, brokers, zookeeper, ensemble, steady, rights]
  about:
    description: What the reading is about; its keys depend on I(read), see pylog/ops/host.py.
    type: dict
    default: {}
  must_be_well:
    description: Whether the task fails when what it waited for did not come.
    type: bool
    default: true
"""

EXAMPLES = """
- name: Wait until broker 1 is in sync
  pylog_host:
    read: brokers
    about: {brokers: [1], wait_s: 600}
"""

RETURN = """
answer:
  description: The reading; C(is_well) says whether what it waited for came.
  returned: always
  type: dict
"""


def main() -> None:
    """Answer one question about the host."""
    module = AnsibleModule(
        argument_spec={
            "read": {"type": "str", "required": True, "choices": sorted(VERBS)},
            "about": {"type": "dict", "default": {}},
            "must_be_well": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    answer = VERBS[module.params["read"]](module.params["about"])
    if module.params["must_be_well"] and not answer.get("is_well", True):
        lines = "\n".join([f"not well: {answer['reason']}", *answer.get("journal", [])])
        module.fail_json(msg=lines, answer=answer)
    module.exit_json(changed=False, answer=answer)


if __name__ == "__main__":
    main()
