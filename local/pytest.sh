#!/usr/bin/env bash
# pytest.sh NAME PATH...: runs tests and keeps their report, from which `make test` sums up.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

name=${1:?usage: pytest.sh NAME PATH...}
shift
local/setup.sh
mkdir -p "$STATE/results"
rm -f "$STATE/results/$name.xml"
exec "$VENV/bin/python" -m pytest -q -p no:cacheprovider --junitxml="$STATE/results/$name.xml" \
  -o junit_suite_name="$name" "$@"
