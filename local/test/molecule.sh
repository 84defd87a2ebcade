#!/usr/bin/env bash
# molecule.sh SCENARIO: runs one Molecule scenario on a set of hosts of its own, and does not believe a green end:
# Molecule passes when no host matched, when a playbook is missing, when the recap could not be read, and when
# verify collected no test. KEEP=1 leaves the hosts behind for a look.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

scenario=${1:?usage: molecule.sh SCENARIO}
directory="$ROOT/molecule/$scenario"
[[ -f "$directory/molecule.yml" ]] || die "there is no scenario $scenario: molecule/$scenario/molecule.yml is missing"
[[ -f "$directory/scenario.sh" ]] || die "molecule/$scenario/scenario.sh must say how many tests verify has at least"
lock_checkout

. molecule/shared/scenario.sh
# shellcheck source=/dev/null
. "$directory/scenario.sh"
export PYLOG_HOSTS="$hosts" HOST_IMAGE="$image"
export PYLOG_HOSTS_SET="molecule-${scenario//_/-}"
export PYLOG_HOSTS_FILE="$STATE/$PYLOG_HOSTS_SET/hosts.json"
export PYLOG_JUNIT_XML="$STATE/results/molecule-$scenario.xml"
log="$STATE/results/molecule-$scenario.log"
mkdir -p "$STATE/results"
rm -f "$PYLOG_JUNIT_XML"
[[ -n "$keeps_numbers" ]] || rm -f "$STATE/results/$scenario.json"

finish() {
  local status=$?
  trap - EXIT
  if [[ $status -ne 0 ]]; then
    local/hosts/journals.sh "$PYLOG_HOSTS_SET" || true
    say "the whole log: $log"
  fi
  # What processors did for the hosts is no child's work of the stage that `make test` measures.
  [[ -z "${STAGE_CPU:-}" ]] || python3 -m local.hosts --set "$PYLOG_HOSTS_SET" cpu >>"$STAGE_CPU" || true
  if [[ -n "${KEEP:-}" ]]; then
    say "hosts kept: python3 -m local.hosts --set $PYLOG_HOSTS_SET status|shell HOST|destroy"
  else
    python3 -m local.hosts --set "$PYLOG_HOSTS_SET" destroy || true
  fi
  exit "$status"
}

local/setup.sh
local/hosts/image.sh
"$VENV/bin/python" local/wheelhouse.py
before
python3 -m local.hosts --set "$PYLOG_HOSTS_SET" destroy # left by a run that was killed
trap finish EXIT
# shellcheck disable=SC2086  # a list of words
python3 -m local.hosts --set "$PYLOG_HOSTS_SET" plan $PYLOG_HOSTS "${plan_options[@]}" # the inventory reads it, also before `create`
planned

export PATH="$VENV/bin:$PATH" ANSIBLE_FORCE_COLOR=0 NO_COLOR=1
# Molecule remembers what it created and prepared, and skips it, though those hosts are gone.
molecule reset --scenario-name "$scenario" >"$log" 2>&1 || die "molecule reset failed: $log"

# The hosts must outlive a failure, so that their journals can be shown: this script destroys them, not Molecule.
"${within[@]}" molecule test --scenario-name "$scenario" --destroy=never 2>&1 | tee "$log" || die "Molecule failed"

# The secret that brokers know each other by was made by this run's first deployment, which showed all it wrote.
for secret in "$STATE"/*.secret "$STATE/$PYLOG_HOSTS_SET"/*.secret "$STATE"/users/*.password; do
  if [[ -s "$secret" ]] && grep -qF -f "$secret" "$log"; then die "the secret of $secret stands in $log"; fi
done

tested=$("$VENV/bin/python" -m local.test.molecule_log "$log" "$PYLOG_JUNIT_XML" "$min_tests" \
  "${empty_plays[@]}") ||
  die "Molecule ended well without having tested enough"
say "$tested"

# The last full run stays in the repository, for whoever wants to know before running it.
if [[ -n "${FULL:-}" ]]; then
  "$VENV/bin/python" -m local.test.molecule_page "$scenario" "$(tested_commit)" "$(date -u +%F)" \
    "$SECONDS" "$(nproc) cores, load average $(cut -d ' ' -f 1,3 /proc/loadavg | tr ' ' '/') (1/15 minutes) at the end" \
    "${tested#tested: }" "$STATE/results/$scenario.json" "$PYLOG_JUNIT_XML" "$directory/about.md" \
    >"docs/results/molecule-$scenario.md"
  say "kept as docs/results/molecule-$scenario.md"
fi
