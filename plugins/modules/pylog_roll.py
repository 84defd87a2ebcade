#!/usr/bin/python
"""Ansible module: what a roll changes on a host.

The program is `pylog/ops/swap.py`, which `plugins/module_utils` links to. It comes with the playbook instead of being a
verb of the installed release, because it must take back a release that does not run.
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pylog_swap import CHANGING, VERBS, SwapError

DOCUMENTATION = """
module: pylog_roll
short_description: Carry out one part of a rolling restart on a host
description:
  - Never waits for a cluster. Every verb may be repeated after it was killed half way.
  - Does nothing in check mode.
options:
  verb:
    description: The part of the step, see pylog/ops/swap.py.
    type: str
    required: true
    choices: [keep, restart, back, finish, ask, asked, prune]
  about:
    description: Which processes, and what the verb needs beside them.
    type: dict
    default: {}
"""

EXAMPLES = """
- name: Restart broker 1 on a release
  pylog_roll:
    verb: restart
    about: {name: broker-1, release: 0.1.0-ab, files: {}, reasons: [config]}
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
            "about": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    verb = module.params["verb"]
    if module.check_mode:
        module.exit_json(changed=False, skipped=True, answer={})
    try:
        answer = VERBS[verb](module.params["about"])
    except (SwapError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=verb in CHANGING or bool(answer.get("changed")), answer=answer)


if __name__ == "__main__":
    main()
