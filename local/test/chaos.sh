#!/usr/bin/env bash
# chaos.sh OPTION...: faults against a cluster of real processes; the page of a run to its end goes to docs/results.
#   local/test/chaos.sh --minutes 30 [--seed N] [--brokers 3|4|5]      python -m tests.chaos --help has the rest
#   local/test/chaos.sh --minutes 1 --planted [NAME...]                does the checker find faults of the code?
# What a killed run left behind is removed with `python -m tests.chaos --clean RUN`.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"
[[ $EUID -eq 0 ]] || die "namespaces and mounts need root: run it as root"

page=docs/results/chaos.md
[[ " $* " != *" --planted "* ]] || page=docs/results/chaos-planted.md
exec "$VENV/bin/python" -m tests.chaos --page "$page" "$@"
