#!/usr/bin/python
"""Ansible module: make private keys on a host and put certificates behind them.

The program is `pylog/ops/keys.py`, which `plugins/module_utils` links to; it needs the standard library and openssl.
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.pylog_keys import VERBS, KeyProblem

DOCUMENTATION = """
module: pylog_key
short_description: Request a certificate for a new private key, or install one
description:
  - C(request) makes a private key beside I(path) and returns a request for its certificate.
  - C(install) puts a chain behind that key and renames both to I(path), owned by root, readable for I(group).
  - In check mode nothing is made; each says that it would change something.
options:
  verb:
    description: What to do.
    type: str
    required: true
    choices: [request, install]
  path:
    description: File with the private key and the chain.
    type: path
    required: true
  common_name:
    description: Subject of the request.
    type: str
  chain:
    description: Certificates in PEM, the host's own first.
    type: str
  key:
    description: A private key that the operator has made; the requested one unless set.
    type: str
  group:
    description: Group that may read the file.
    type: str
"""

EXAMPLES = """
- name: Make a private key and a request for its certificate
  pylog_key:
    verb: request
    path: /etc/pylog/tls.pem
    common_name: pylog
"""

RETURN = """
request:
  description: The request in PEM.
  returned: with C(request), outside check mode
  type: str
"""


def main() -> None:
    """Carry out one verb."""
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "required": True, "choices": sorted(VERBS)},
            "path": {"type": "path", "required": True},
            "common_name": {"type": "str"},
            "chain": {"type": "str"},
            "key": {"type": "str", "no_log": True},
            "group": {"type": "str"},
        },
        required_if=[["verb", "request", ["common_name"]], ["verb", "install", ["chain", "group"]]],
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True, request="")
    try:
        answer = VERBS[module.params["verb"]](module.params)
    except (KeyProblem, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**{"changed": True, **answer})


if __name__ == "__main__":
    main()
