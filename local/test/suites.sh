#!/usr/bin/env bash
# Integration suites of other projects against a standalone broker; the result goes to docs/results.
#   suites.sh [kafka-python] [kgo]
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

local/setup.sh
command -v go >/dev/null || die "kgo's tests want the go command, 1.22 or later: https://go.dev/dl"
exec "$VENV/bin/python" -m tests.suites "$CACHE/uv-venv/bin/pip" "$CACHE/suites" "$@"
