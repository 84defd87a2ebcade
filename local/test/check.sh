#!/usr/bin/env bash
# Everything that reads the sources without running them. All checks run, also after one failed.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"
local/setup.sh
export PATH="$VENV/bin:$PATH"
failed=()

check() {
  local name=$1
  shift
  say "--> $name"
  "$@" || failed+=("$name")
}

mapfile -t shell_scripts < <(git ls-files '*.sh' .ci/run)
mapfile -t roots < <(for path in roles playbooks molecule/shared; do if [[ -e "$path" ]]; then echo "$path"; fi; done)

check ruff ruff check .
check 'ruff format' ruff format --check .
check mypy mypy --no-error-summary
check commits python -m local.test.commits
check shellcheck shellcheck --external-sources "${shell_scripts[@]}"
check 'import layers' python -m pytest -q -p no:cacheprovider tests/test_layers.py
check yamllint yamllint --strict .
# Offline: it would fetch the collections anew, which the ansible package already carries.
[[ ${#roots[@]} -eq 0 ]] || check ansible-lint env ANSIBLE_INVENTORY=inventories/example ansible-lint --offline --profile production "${roots[@]}"

[[ ${#failed[@]} -eq 0 ]] || die "failed: ${failed[*]}"
