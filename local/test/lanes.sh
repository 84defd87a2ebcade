# shellcheck shell=bash
# Sourced after lib.sh: lanes of stages that run side by side. RESULTS is the directory that takes their logs.

# lane_stage NAME BUDGET_SECONDS COMMAND...: as `stage`, with what it prints kept in a log and shown when it ends, so that
# lines of two lanes do not mix. A stage that fails does not end its lane: STAGES has its exit code.
lane_stage() {
  local log="$RESULTS/${1// /-}.log"
  local -x STAGE_CPU="$log.cpu"
  : >"$STAGE_CPU"
  say "--> $1: begins, log ${log#"$ROOT/"}"
  stage "$@" >"$log" 2>&1 || true
  rm -f "$STAGE_CPU"
  { flock 8 && cat "$log"; } 8>"$RESULTS/shown.lock"
}

_lanes=()

_end_lanes() {
  local status=$? lane
  trap - EXIT
  for lane in "${_lanes[@]}"; do kill -TERM -- "-$lane" 2>/dev/null || true; done
  wait
  exit "$status"
}

# run_lanes FUNCTION...: runs each beside the others and returns when all have ended. Each is a process group of its own,
# so that an interrupted run ends all that it started.
run_lanes() {
  local lane
  trap _end_lanes EXIT
  set -m
  for lane in "$@"; do
    "$lane" &
    _lanes+=($!)
  done
  set +m
  wait "${_lanes[@]}"
  _lanes=()
  trap - EXIT
}
