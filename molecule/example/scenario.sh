# shellcheck shell=bash disable=SC2034,SC2154  # local/test/molecule.sh reads it, and has VENV and STATE
zone=example.internal
hosts="bastion.$zone"
for host in zk-a1 zk-a2 zk-a3 log-a1 log-a2 log-a3 log-b1 log-b2 log-b3 spark-b1; do hosts+=" $host.$zone"; done
image=packages
min_tests=11
empty_plays=(
  "Install Spark on the hosts of its standalone cluster"
  "Run the standalone cluster of Spark, its master first"
)
plan_options=(--user deploy --data-network --bastion "bastion.$zone")
for host in log-b1 log-b2 log-b3 spark-b1; do plan_options+=(--behind "$host.$zone"); done

planned() {
  export PYLOG_INVENTORY="$STATE/$PYLOG_HOSTS_SET/inventory"
  export ANSIBLE_VAULT_PASSWORD_FILE="$STATE/$PYLOG_HOSTS_SET/vault.secret"
  # podman's own files belong to the mounts outside, so the hosts are there before Molecule begins.
  # shellcheck disable=SC2086  # a list of words
  python3 -m local.hosts --set "$PYLOG_HOSTS_SET" up $PYLOG_HOSTS
  "$VENV/bin/python" -m tests.rolls.example.inventory "$PYLOG_INVENTORY"
}

# Names as an operator's DNS has them, and only those of the logins: nothing here may reach the network for data by name.
# The file stands over this machine's own for Molecule and its children alone.
# shellcheck disable=SC2016  # the inner shell's words
within=(
  as_root unshare --mount sh -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$STATE/molecule-example/names"
)
