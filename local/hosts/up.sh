#!/usr/bin/env bash
# From a bare Debian machine to a running cluster with data flowing through it. Each step finds out itself what is
# left to do, so the same command continues after an interruption, a failure or a reboot.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"
lock_checkout

PYTHON3="${PYTHON3:-/usr/bin/python3}"
export STAGES="$STATE/up-stages.tsv"
ANSIBLE_LOG="$STATE/site.log"
export HOST_IMAGE="${HOST_IMAGE:-packages}"
: >"$STAGES"
started=$EPOCHREALTIME
current='nothing'
wheels=

# Neither needs the other, and each mostly waits for something else: disk, mirror, package index.
python_and_wheels() { local/setup.sh && "$VENV/bin/python" local/wheelhouse.py; }

hosts_and_wheels() {
  local status=0
  set -m # a process group of its own, so that an interrupted run can end all of it
  python_and_wheels &
  wheels=$!
  set +m
  # shellcheck disable=SC2086  # HOSTS is a list of words
  local/hosts/image.sh && "$PYTHON3" -m local.hosts up ${HOSTS:-} || status=$?
  wait "$wheels" || status=$?
  wheels=
  return "$status"
}

# As told now, or as these hosts were made.
choose_security() {
  local before=sasl_ssl
  if [[ -s "$STATE/security" ]]; then before=$(<"$STATE/security"); fi
  SECURITY=${SECURITY:-$before}
  [[ "$SECURITY" == sasl_ssl || "$SECURITY" == none ]] || die "SECURITY is $SECURITY; sasl_ssl or none is wanted"
  if [[ -s "$STATE/security" && -f "$STATE/hosts.json" && "$SECURITY" != "$before" ]]; then
    die "these hosts were made with SECURITY=$before; \`make down\` first, then \`SECURITY=$SECURITY make up\`"
  fi
  export SECURITY
  echo "$SECURITY" >"$STATE/security"
}

deploy() {
  local status=0
  ANSIBLE_FORCE_COLOR=$([[ -t 1 ]] && echo 1 || echo 0) PATH="$VENV/bin:$PATH" \
    ansible-playbook -i inventories/local playbooks/site.yml 2>&1 | tee "$ANSIBLE_LOG" || status=$?
  # Whoever comes later finds how to connect, also when the data did not arrive.
  if [[ $status -eq 0 ]]; then "$PYTHON3" -m local.hosts.client || status=$?; fi
  return "$status"
}

# Names the hosts a failed play left behind, shows their journals, and says how to go on.
explain_failure() {
  local status=$? failed=()
  trap - EXIT
  [[ $status -ne 0 ]] || exit 0
  [[ -z "$wheels" ]] || kill -- "-$wheels" 2>/dev/null || true
  if [[ $status -eq 130 || $status -eq 143 ]]; then
    say "interrupted in: $current; \`make up\` continues where it stopped"
    exit "$status"
  fi
  say ""
  say "make up failed in: $current"
  if [[ "$current" == "site.yml" && -f "$ANSIBLE_LOG" ]]; then
    mapfile -t failed < <(sed -E 's/\x1b\[[0-9;]*m//g' "$ANSIBLE_LOG" |
      sed -nE 's/^([a-z0-9]+) +: .*(unreachable=[1-9]|failed=[1-9]).*/\1/p')
  fi
  if [[ "$current" != packages && "$current" != doctor ]]; then local/hosts/journals.sh main "${failed[@]}" || true; fi
  say ""
  say "next: read the lines above, then \`make up\` again: it continues where it stopped."
  if [[ ${#failed[@]} -gt 0 ]]; then
    say "      a shell on the failing host: make shell HOST=${failed[0]}   its journal: make logs HOST=${failed[0]}"
  else
    say "      make doctor checks what this machine must have, make status shows what runs"
  fi
  exit "$status"
}
trap explain_failure EXIT

run_stage() {
  current=$1
  stage "$@"
}

choose_security
run_stage packages 90 local/setup.sh packages
run_stage doctor 10 local/hosts/doctor.sh
run_stage 'hosts and wheels' 90 hosts_and_wheels
run_stage site.yml 150 deploy
run_stage 'data, and its count' 110 local/demo/demo.sh
current='closing screen'
total=$(awk -v a="$started" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.0f", b - a }')
local/demo/closing.sh "$total"
