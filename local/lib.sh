# shellcheck shell=bash disable=SC2034
# Sourced by every script here: where things are, who may do what, one run at a time, seconds per stage.

set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
STATE="$ROOT/.local"
CACHE="$STATE/cache"
VENV="$ROOT/.venv"
# Who calls may forbid it; but then each of the hundreds of processes of a test run compiles all that it imports, half of
# what the start of a broker costs. `make distclean` removes what is written.
unset PYTHONDONTWRITEBYTECODE
cd "$ROOT"

# Without these an EXIT trap sees an interrupted run as one that ended well.
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir -p "$STATE" "$CACHE"

# Packages, loop devices and containers need root; everything else runs as whoever called make.
as_root() {
  if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi
}

say() { printf '%s\n' "$*" >&2; }

die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Asks for sudo's password once, before programs run side by side that would each ask.
authorize() { [[ $EUID -eq 0 ]] || sudo --validate; }

# One changing command at a time in a checkout. Scripts that call each other hold the lock once.
lock_checkout() {
  [[ "${PYLOG_LOCK_HELD:-}" == "$ROOT" ]] && return 0
  exec 9>"$STATE/lock"
  if ! flock --nonblock 9; then
    die "another make is changing this checkout (process $(cat "$STATE/lock.pid" 2>/dev/null || echo unknown)); wait for it or use a second checkout"
  fi
  echo $$ >"$STATE/lock.pid"
  export PYLOG_LOCK_HELD="$ROOT"
  authorize
}

# stage NAME BUDGET_SECONDS COMMAND...: runs, prints and records how long it took and how long processors worked for it.
# What works for it, but is not a child of its own, is added to the file STAGE_CPU, a number of seconds a line.
STAGES="${STAGES:-$STATE/stages.tsv}"
stage() {
  local name=$1 budget=$2 status=0 took seconds user system cpu TIMEFORMAT='%1R %U %S'
  shift 2
  took=$(mktemp)
  say "==> $name"
  # Not in a subshell: a stage may set what its script cleans up. Nothing that it leaves running holds 3 and 4 open.
  { time "$@" >&3 2>&4 3>&- 4>&-; } 3>&1 4>&2 2>"$took" || status=$?
  read -r seconds user system < <(tail -n 1 "$took")
  cpu=$({ echo "$user"; echo "$system"; cat "${STAGE_CPU:-/dev/null}"; } | awk '{ sum += $1 } END { printf "%.1f", sum }')
  rm -f "$took"
  printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$seconds" "$budget" "$status" "$cpu" >>"$STAGES"
  say "<== $name: ${seconds} s (budget ${budget} s)$([[ $status -eq 0 ]] || echo ", FAILED with exit code $status")"
  return "$status"
}

# The archive this machine installs from is the one its hosts install from: "deb SITE SUITE main", a line each.
debian_sources() {
  # shellcheck disable=SC2016  # apt's own placeholders
  apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$2 ~ /^bookworm(-updates|-security)?$/ && $3 == "main" && !seen[$0]++ { print "deb", $1, $2, $3 }'
}

# hash_of FILE...: one short name for the content of several files, wherever the checkout lies.
hash_of() { sha256sum -- "$@" | cut -d ' ' -f 1 | sha256sum | cut -c1-16; }

# The commit that is tested, for pages of results: those that earlier runs wrote do not make it another one.
tested_commit() {
  local commit
  commit=$(git describe --always --abbrev=10)
  [[ -z "$(git status --porcelain -- . ':!docs/results')" ]] || commit+=-dirty
  echo "$commit"
}
