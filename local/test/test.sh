#!/usr/bin/env bash
# All tests, each stage with a time budget. Four lanes of stages run side by side, because most stages wait for servers
# more than they compute. Later stages run also when one failed; the last line has the sum.
# shellcheck source-path=SCRIPTDIR disable=SC2317  # run_lanes calls what seems to be called by nobody
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/lanes.sh"
lock_checkout

export STAGES="$STATE/test-stages.tsv" RESULTS="$STATE/results"
: >"$STAGES"
rm -rf "$RESULTS"
mkdir -p "$RESULTS"

# On two idle cores, with everything that is downloaded once in the caches.
BUDGET_S=2280

# Tests that need servers.
served=(env SECOND_TRY=1 local/test/pytest.sh)

# Budgets of a lane add up to less than that of the whole run.

# What computes, behind what others wait for: a broker that gets no processor for seconds is a broker that pauses. It
# lasts as long as the others, on what they leave.
behind=(nice -n 5)
computing_lane() {
  lane_stage lint 180 "${behind[@]}" local/test/check.sh
  lane_stage 'unit and property' 480 "${behind[@]}" local/test/pytest.sh unit tests/unit
  lane_stage fuzzing 40 "${behind[@]}" local/test/pytest.sh fuzz tests/fuzz
  lane_stage simulation 180 "${behind[@]}" local/test/pytest.sh sim tests/sim
}

# Deployments, which compute and wait by turns.
deploying_lane() {
  lane_stage 'cluster scenario' 840 local/test/molecule.sh cluster
  lane_stage 'rolling upgrade' 480 local/test/molecule.sh rolling_upgrade
}

# What waits: for servers to start and to die, for sessions to end. Clients of this repository in one lane, programs,
# clients of others and Spark in the other.
waiting_lane() {
  lane_stage 'cluster tests' 960 "${served[@]}" cluster tests/cluster
  lane_stage connections 360 "${served[@]}" net tests/net
  lane_stage consumers 210 "${served[@]}" consumers tests/consumers
}

other_waiting_lane() {
  lane_stage programs 480 "${served[@]}" programs tests/programs
  lane_stage interop 450 "${served[@]}" interop tests/interop
  lane_stage pipeline 480 "${served[@]}" pipeline tests/pipeline
  lane_stage chaos 240 "${served[@]}" chaos tests/chaos
}

stage set-up 480 local/setup.sh || die 'nothing can be tested without what setup.sh installs'
run_lanes computing_lane deploying_lane waiting_lane other_waiting_lane

# Hosts that stay, those of `make up` or kept for a look, go on installing through the package cache.
compgen -G "$STATE/hosts.json" >/dev/null || compgen -G "$STATE/*/hosts.json" >/dev/null ||
  "${PYTHON3:-/usr/bin/python3}" local/hosts/apt_cache.py stop

status=0
"$VENV/bin/python" -m local.test.report "$STAGES" "$RESULTS" "$SECONDS" "$BUDGET_S" || status=$?
exit "$status"
