#!/usr/bin/env bash
# pytest.sh NAME PATH...: runs tests and keeps their report, from which `make test` sums up. With SECOND_TRY=1 a few
# failures are tried once more, alone (second_try.py says which).
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

name=${1:?usage: pytest.sh NAME PATH...}
shift
local/setup.sh
mkdir -p "$STATE/results"
report="$STATE/results/$name"
rm -f "$report.xml" "$report-again.xml"

# Longer than any test takes on a busy machine; one that hangs fails then, with the stacks of all threads.
TEST_LIMIT_S=600

# run REPORT_XML ARGUMENT...
run() {
  "$VENV/bin/python" -m pytest -q -o cache_dir="$STATE/pytest/$name" --timeout="$TEST_LIMIT_S" --junitxml="$1" \
    -o junit_suite_name="$name" "${@:2}"
}

status=0
run "$report.xml" "$@" || status=$?
if [[ $status -eq 1 && -n "${SECOND_TRY:-}" ]] && "$VENV/bin/python" -m local.test.second_try "$report.xml"; then
  say "--> what failed, once more"
  status=0
  run "$report-again.xml" --last-failed --last-failed-no-failures none "$@" || status=$?
fi
exit "$status"
