#!/usr/bin/env bash
# baremetal.sh: the playbooks on virtual machines with a kernel and disks of their own; then what containers cannot
# show: settings that the kernel really took, a reboot, a power cut of one host and of all of them. The result stays in
# docs/results/baremetal.md. HOSTS=live1 is a cluster of one broker, where little is at hand.
# KEEP=1 leaves the machines behind for a look: local/machines.py status|logs HOST|destroy.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"
lock_checkout

export STAGES="$STATE/baremetal-stages.tsv" PYLOG_HOSTS_FILE="$STATE/machines/hosts.json"
export PATH="$VENV/bin:$PATH" ANSIBLE_FORCE_COLOR=0 NO_COLOR=1
# An emulated machine on a busy one takes longer than Ansible's ten seconds to say who it is.
export ANSIBLE_TIMEOUT=90
log="$STATE/results/baremetal.log"
numbers="$STATE/results/baremetal.json"
mkdir -p "$STATE/results"
rm -f "$log" "$numbers"
: >"$STAGES"

finish() {
  local status=$? host
  trap - EXIT
  if [[ $status -ne 0 && -f "$PYLOG_HOSTS_FILE" ]]; then
    for host in $(jq -r '.hosts | keys[]' "$PYLOG_HOSTS_FILE"); do
      say "---- $host"
      local/machines.py logs "$host" >&2 || true
    done
    say "the whole log: $log"
  fi
  if [[ -n "${KEEP:-}" ]]; then
    say "machines kept: local/machines.py status|logs HOST|destroy"
  else
    local/machines.py destroy || true
  fi
  exit "$status"
}

logged() {
  local status=0
  "$@" 2>&1 | tee -a "$log" || status=$?
  return "$status"
}
setup() { EXTRA_PACKAGES='qemu-system-x86 nbdkit e2fsprogs' local/setup.sh && python local/wheelhouse.py; }
play() { logged ansible-playbook -i inventories/local "playbooks/$1.yml"; }
infra() {
  logged pytest -q -p no:cacheprovider -m readonly --connection=ansible --hosts=all \
    --ansible-inventory=inventories/local tests/infra/test_{hosts,deployment,cluster}.py
}
power() { logged pytest -q -p no:cacheprovider tests/baremetal; }

stage 'packages and wheels' 300 setup
stage image 240 local/machine_image.sh
local/machines.py destroy # left by a run that was killed
trap finish EXIT
# shellcheck disable=SC2086  # a list of words
stage machines 300 local/machines.py up ${HOSTS:-}
stage preflight 120 play preflight
stage site 1200 play site
stage 'testinfra suite' 600 infra
stage 'reboot and power cuts' 1800 power
# Every host was off and on again by now.
stage 'testinfra suite again' 600 infra

{
  printf '# Bare metal, in virtual machines\n\n'
  # shellcheck disable=SC2016  # Markdown
  printf 'The last run of `make baremetal`; the handbook says what it does, local/machines.py what a power cut is.\n\n'
  printf '| commit | date | seconds | machines | cores, load at the end |\n|---|---|---|---|---|\n'
  printf '| %s | %s | %s | %s, %s | %s, %s |\n\n' "$(git describe --always --dirty --abbrev=10)" "$(date -u +%F)" "$SECONDS" \
    "$(jq '.hosts | length' "$PYLOG_HOSTS_FILE")" "$(jq -r .hypervisor "$numbers")" "$(nproc)" "$(cut -d ' ' -f 1 /proc/loadavg)"
  printf '| stage | seconds |\n|---|---|\n'
  awk -F '\t' '{ printf "| %s | %s |\n", $1, $2 }' "$STAGES"
  printf '\nTests: %s.\n\n' "$(grep '^passed=' "$log" | paste -sd ';' | sed 's/;/; /g')"
  sed 's/^/    /' "$numbers"
} >docs/results/baremetal.md
say "kept as docs/results/baremetal.md"
