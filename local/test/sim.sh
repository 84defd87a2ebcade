#!/usr/bin/env bash
# Simulated runs of a cluster; see docs/design/simulation.md.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

exec "$VENV/bin/python" -m tests.sim "$@"
