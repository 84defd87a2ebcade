# shellcheck shell=bash disable=SC2034,SC2154  # local/test/molecule.sh reads it, and has VENV and STATE
# handed_over INVENTORY: the scenario deploys that inventory of the repository onto hosts as a company hands them over.

handed_over() {
  handed_inventory=$1
  # Names as an operator's DNS has them, and only those of the logins: nothing here may reach a network for data by name.
  # The file stands over this machine's own for Molecule and its children alone.
  # shellcheck disable=SC2016  # the inner shell's words
  within=(as_root unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$STATE/molecule-$scenario/names")
}

planned() {
  export PYLOG_INVENTORY="$STATE/$PYLOG_HOSTS_SET/inventory"
  export ANSIBLE_VAULT_PASSWORD_FILE="$STATE/$PYLOG_HOSTS_SET/vault.secret"
  # podman's own files belong to the mounts outside, so the hosts are there before Molecule begins.
  # shellcheck disable=SC2086  # a list of words
  python3 -m local.hosts --set "$PYLOG_HOSTS_SET" up $PYLOG_HOSTS
  "$VENV/bin/python" -m tests.rolls.inventory "$handed_inventory" "$PYLOG_INVENTORY"
}
