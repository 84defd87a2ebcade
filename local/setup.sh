#!/usr/bin/env bash
# Installs what the control machine lacks: Debian packages, then .venv from the locked requirements.
# A second run finds everything and ends in well under two seconds.
#   setup.sh            all of it            setup.sh packages   the Debian packages only
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/lib.sh"

# Pinned with its hashes, as everything else is; uv installs the rest several times faster than pip.
UV_REQUIREMENTS="$ROOT/local/uv.txt"
UV="$CACHE/uv-venv/bin/uv"
export UV_CACHE_DIR="${UV_CACHE_DIR:-$CACHE/uv}"
export UV_NATIVE_TLS="${UV_NATIVE_TLS:-1}"
[[ -z "${PIP_INDEX_URL:-}" ]] || export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$PIP_INDEX_URL}"

check_system() {
  local id version
  # shellcheck disable=SC1091
  id=$(. /etc/os-release && echo "$ID") version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  [[ "$id" == debian && "$version" == 12 ]] || die "this machine runs $id $version; pylog's local cluster wants Debian 12"
  [[ $EUID -eq 0 ]] || command -v sudo >/dev/null || die "not root, and sudo is not installed: run make as root or install sudo"
}

java_major() { java -version 2>&1 | sed -nE 's/^[^"]*"([0-9]+).*/\1/p' | head -n 1; }

missing_packages() {
  local wanted installed package
  wanted="$(sed -E 's/#.*//; /^[[:space:]]*$/d' "$ROOT/local/packages.txt") ${EXTRA_PACKAGES:-}"
  # shellcheck disable=SC2086  # one word per package
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' $wanted 2>/dev/null | sed -n 's/ installed$//p' || true)
  for package in $wanted; do
    grep -qxF "$package" <<<"$installed" && continue
    # Any newer Java serves as well.
    if [[ "$package" == openjdk-* ]] && (( $(java_major) >= 17 )) 2>/dev/null; then continue; fi
    # So does the npm of a Node.js that is not Debian's, beside which Debian's cannot be installed.
    if [[ "$package" == npm ]] && command -v npm >/dev/null; then continue; fi
    echo "$package"
  done
}

# Debian starts the services of a package while it installs it. None of them is wanted on this machine: the
# local cluster's services run inside its hosts.
POLICY=/usr/sbin/policy-rc.d
POLICY_MARK='# placed by pylog make setup while it installs packages'
allow_services() { if grep -qsxF "$POLICY_MARK" "$POLICY"; then as_root rm -f "$POLICY"; fi; }
forbid_services() {
  [[ -e "$POLICY" ]] || printf '#!/bin/sh\n%s\nexit 101\n' "$POLICY_MARK" | as_root install -m 755 /dev/stdin "$POLICY"
}

install_packages() {
  local -a missing units=()
  local unit
  mapfile -t missing < <(missing_packages)
  allow_services # left behind by a run that was killed
  [[ ${#missing[@]} -gt 0 ]] || return 0
  say "installing Debian packages: ${missing[*]}"
  trap allow_services EXIT
  forbid_services
  as_root dpkg --configure -a # what an interrupted run left half installed stops apt otherwise
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
  allow_services
  if [[ -d /run/systemd/system && " ${missing[*]} " == *" podman "* ]]; then
    # Enabled by Debian's podman package and of no use here: it would start with the next boot.
    for unit in podman.socket podman-auto-update.timer podman-restart.service; do
      if systemctl is-enabled --quiet "$unit" 2>/dev/null; then units+=("$unit"); fi
    done
    [[ ${#units[@]} -eq 0 ]] || as_root systemctl disable --quiet --now "${units[@]}"
  fi
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} /usr/bin/python3 python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer with the venv module found; set PYTHON=/path/to/python3"
}

# A directory appears only when it is complete, so that an interrupted run leaves nothing half made.
install_uv() {
  local stamp="$CACHE/uv-venv/stamp" wanted
  wanted=$(hash_of "$UV_REQUIREMENTS")
  if [[ -x "$UV" && "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then return; fi
  rm -rf "$CACHE/uv-venv"
  "$(find_python)" -m venv "$CACHE/uv-venv"
  "$CACHE/uv-venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r "$UV_REQUIREMENTS"
  echo "$wanted" >"$stamp"
}

install_venv() {
  local stamp="$STATE/venv.stamp" wanted
  wanted=$(hash_of requirements/dev.txt pyproject.toml "$UV_REQUIREMENTS" local/setup.sh)
  if [[ -x "$VENV/bin/python" && "$(cat "$stamp" 2>/dev/null)" == "$wanted" ]]; then return; fi
  [[ -x "$VENV/bin/python" ]] || "$UV" venv -q --python "$(find_python)" "$VENV"
  say "installing Python packages of requirements/dev.txt into .venv"
  "$UV" pip install -q --python "$VENV/bin/python" --require-hashes -r requirements/dev.txt
  # Unpacked, its source archive takes 2 GB of the cache; .venv has the files now.
  "$UV" cache clean -q pyspark
  # --no-build-isolation: the build tools are among the locked packages, nothing unlocked is fetched.
  # compat: a line with a path, where otherwise each start of this Python, of pylog or not, runs a finder of modules.
  "$UV" pip install -q --python "$VENV/bin/python" --no-deps --no-build-isolation \
    --config-setting editable_mode=compat --editable .
  # Nobody may be allowed to compile it later, see PYTHONDONTWRITEBYTECODE; each of Ansible's processes, one a task and
  # host, would then do so for itself.
  # Its collections are as much as all the rest together, and send modules rather than run them.
  "$VENV/bin/python" -m compileall -q -j 0 -x '/(ansible_collections|ansible_test|tests?)/' \
    "$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" ||
    say "some of it could not be compiled, which only makes what imports it start later"
  echo "$wanted" >"$stamp"
}

case "${1:-all}" in
  missing) missing_packages ;; # what `make doctor` asks
  packages | all)
    lock_checkout
    check_system
    install_packages
    install_uv # doctor asks the Python index with it
    if [[ "${1:-all}" == all ]]; then install_venv; fi
    ;;
  *) die "usage: setup.sh [all|packages|missing]" ;;
esac
