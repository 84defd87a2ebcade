#!/usr/bin/python
"""Ansible module: note what a host was like before pylog, and put it back.

The program is `pylog/ops/former.py`, which `plugins/module_utils` links to: it runs before a release is installed and
after the last one is gone.
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pylog_former import VERBS

DOCUMENTATION = """
module: pylog_former
short_description: Note or restore kernel settings and users as they were before pylog
description:
  - Does nothing in check mode.
options:
  verb:
    description: Whether to note what is there now, or to put back what was noted.
    type: str
    required: true
    choices: [record, restore]
  about:
    description: C(sysctls), a list of names, to record; C(users), whether users go too, to restore.
    type: dict
    required: true
"""

EXAMPLES = """
- name: Note what was before
  pylog_former:
    verb: record
    about: {sysctls: [vm.swappiness]}
"""

RETURN = """
answer:
  description: What was done.
  returned: always
  type: dict
"""


def main() -> None:
    """Carry out one verb."""
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "required": True, "choices": sorted(VERBS)},
            "about": {"type": "dict", "required": True},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, answer={})
    answer = VERBS[module.params["verb"]](module.params["about"])
    module.exit_json(changed=answer["changed"], answer=answer)


if __name__ == "__main__":
    main()
