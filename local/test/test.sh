#!/usr/bin/env bash
# All tests, each stage with a time budget. Later stages run also when one failed; the last line has the sum.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"
lock_checkout

export STAGES="$STATE/test-stages.tsv"
: >"$STAGES"
rm -rf "$STATE/results"
mkdir -p "$STATE/results"
failed=()

# test_stage NAME BUDGET_SECONDS COMMAND...
test_stage() { stage "$@" || failed+=("$1"); }

# Tests that need servers.
served=(env SECOND_TRY=1 local/test/pytest.sh)

test_stage 'set-up and lint' 480 local/test/check.sh
test_stage 'unit and property' 300 local/test/pytest.sh unit tests/unit
test_stage 'fuzzing' 120 local/test/pytest.sh fuzz tests/fuzz
test_stage 'connections' 300 "${served[@]}" net tests/net
test_stage 'simulation' 90 local/test/pytest.sh sim tests/sim
test_stage 'cluster tests' 660 "${served[@]}" cluster tests/cluster
test_stage 'consumers' 300 "${served[@]}" consumers tests/consumers
test_stage 'programs' 480 "${served[@]}" programs tests/programs
test_stage 'interop' 300 "${served[@]}" interop tests/interop
test_stage 'pipeline' 300 "${served[@]}" pipeline tests/pipeline
test_stage 'cluster scenario' 600 local/test/molecule.sh cluster
test_stage 'rolling upgrade' 360 local/test/molecule.sh rolling_upgrade

# Hosts that stay, those of `make up` or kept for a look, go on installing through the package cache.
compgen -G "$STATE/hosts.json" >/dev/null || compgen -G "$STATE/*/hosts.json" >/dev/null ||
  "${PYTHON3:-/usr/bin/python3}" local/hosts/apt_cache.py stop

status=0
"$VENV/bin/python" -m local.test.report "$STAGES" "$STATE/results" "${failed[@]}" || status=$?
exit "$status"
