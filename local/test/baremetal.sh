#!/usr/bin/env bash
# baremetal.sh: what containers cannot show, in virtual machines with kernels and disks of their own. First three that
# run a broker and nothing else lose power; then the playbooks on whole ones: settings that the kernel really took, a
# reboot, a power cut of one host and of all of them. The result stays in docs/results/baremetal.md.
# Where little is at hand: ONLY=brokers and ONLY=hosts are the first and the second part alone (their results:
# docs/results/baremetal-brokers.md and -hosts.md), HOSTS=live1 makes the second a cluster of one broker.
# KEEP=1 leaves the machines behind for a look (python3 -m local.hosts.machines status|logs HOST|destroy), and goes on with those that
# an earlier KEEP=1 left.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"
lock_checkout

export STAGES="$STATE/baremetal-stages.tsv" PYLOG_HOSTS_FILE="$STATE/machines/hosts.json"
export PATH="$VENV/bin:$PATH" ANSIBLE_FORCE_COLOR=0 NO_COLOR=1
log="$STATE/results/baremetal.log"
numbers="$STATE/results/baremetal.json"
page="docs/results/baremetal${ONLY:+-$ONLY}.md"
commit=$(tested_commit)
case "${ONLY:-}" in
  '' | brokers | hosts) ;;
  *) die "ONLY: found $ONLY, wanted brokers or hosts" ;;
esac
mkdir -p "$STATE/results"
rm -f "$log" "$numbers"
: >"$STAGES"

finish() {
  local status=$? host
  trap - EXIT
  if [[ $status -ne 0 && -f "$PYLOG_HOSTS_FILE" ]]; then
    for host in $(jq -r '.hosts | keys[]' "$PYLOG_HOSTS_FILE"); do
      say "---- $host"
      python3 -m local.hosts.machines logs "$host" >&2 || true
    done
    say "the whole log: $log"
  fi
  if [[ -n "${KEEP:-}" ]]; then
    say "machines kept: python3 -m local.hosts.machines status|logs HOST|destroy"
  else
    python3 -m local.hosts.machines destroy || true
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
brokers() { logged pytest -q -p no:cacheprovider tests/baremetal/test_brokers.py; }
power() { logged pytest -q -p no:cacheprovider tests/baremetal/test_power.py; }

stage 'packages and wheels' 300 setup
stage image 240 local/hosts/machine_image.sh
machines=()
if [[ "${ONLY:-}" != hosts ]]; then
  stage 'power cuts of bare brokers' 900 brokers
  machines+=('3 with a broker alone')
fi
if [[ "${ONLY:-}" != brokers ]]; then
  origin='made anew'
  if [[ -n "${KEEP:-}" && -f "$PYLOG_HOSTS_FILE" ]]; then
    origin='left by an earlier run'
  else
    python3 -m local.hosts.machines destroy # left by a run that was killed
  fi
  trap finish EXIT
  # shellcheck disable=SC2086  # a list of words
  stage machines 300 python3 -m local.hosts.machines up ${HOSTS:-}
  stage site 1200 play site
  stage 'testinfra suite' 600 infra
  stage 'reboot and power cuts' 1800 power
  # Every host was off and on again by now.
  stage 'testinfra suite again' 600 infra
  machines+=("$(jq '.hosts | length' "$PYLOG_HOSTS_FILE") whole, $origin")
fi

{
  printf '# Bare metal, in virtual machines\n\n'
  # shellcheck disable=SC2016  # Markdown
  printf 'The last run of `%smake baremetal`; the handbook says what it does, local/hosts/machines.py what a power cut is.\n\n' \
    "${ONLY:+ONLY=$ONLY }"
  printf '| commit | date | seconds | machines | cores, load at the end |\n|---|---|---|---|---|\n'
  printf '| %s | %s | %s | %s | %s, %s |\n\n' "$commit" "$(date -u +%F)" "$SECONDS" \
    "$(printf '%s, ' "${machines[@]}")$(jq -r .hypervisor "$numbers")" "$(nproc)" "$(cut -d ' ' -f 1 /proc/loadavg)"
  printf '| stage | seconds |\n|---|---|\n'
  awk -F '\t' '{ printf "| %s | %s |\n", $1, $2 }' "$STAGES"
  printf '\nTests: %s.\n\n' "$(grep '^passed=' "$log" | paste -sd ';' | sed 's/;/; /g')"
  sed 's/^/    /' "$numbers"
  cat tests/baremetal/about.md
} >"$page"
say "kept as $page"
