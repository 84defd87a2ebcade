#!/usr/bin/env bash
# The base image of the hosts: a Debian 12 machine as an installer would leave it, reachable by SSH, nothing of
# pylog in it. Built from Debian packages alone; no image registry takes part.
#   image.sh        builds it unless it is there        image.sh tag     prints its name
#   image.sh rm     removes it and its predecessors
# HOST_IMAGE=bare is that machine (Molecule deploys onto it). HOST_IMAGE=packages, the choice of `make up`, also has the
# Debian packages that the role `packages` would install: unpacked once for all hosts, not once on each.
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

ROLE_PACKAGES="$ROOT/roles/packages/vars/main.yml"
HOST_IMAGE="${HOST_IMAGE:-bare}"
[[ "$HOST_IMAGE" == bare || "$HOST_IMAGE" == packages ]] || die "HOST_IMAGE is $HOST_IMAGE; bare or packages is wanted"

# The name carries the recipe's content: whoever changes these files gets another image, never a stale one.
TAG="localhost/pylog-host:$HOST_IMAGE-$(hash_of "$ROOT/local/hosts/image.sh" "$ROLE_PACKAGES")"

PACKAGES=(
  systemd systemd-sysv libpam-systemd dbus openssh-server sudo
  python3 python3-apt         # what Ansible needs on a host to install anything
  iproute2 iputils-ping procps kmod util-linux e2fsprogs less ca-certificates tzdata netbase
)
if [[ "$HOST_IMAGE" == packages ]]; then
  mapfile -t of_roles < <(sed -nE 's/^  [a-z_]+: \[([^]]+)\]$/\1/p' "$ROLE_PACKAGES" | tr -d ' ' | tr , '\n' | sort -u)
  [[ ${#of_roles[@]} -gt 0 ]] || die "no package found in $ROLE_PACKAGES"
  PACKAGES+=("${of_roles[@]}")
fi
mapfile -t SOURCES < <(debian_sources)
[[ ${#SOURCES[@]} -gt 0 ]] || die "apt's sources on this machine name no archive of bookworm; see make doctor"

customize() {
  local root=$1
  # Every host makes its own keys at its first start; an image that carries keys would share them.
  rm -f "$root"/etc/ssh/ssh_host_*
  mkdir -p "$root/etc/systemd/system/ssh.service.d"
  printf '%s\n' '[Service]' 'ExecStartPre=' 'ExecStartPre=/usr/bin/ssh-keygen -A' 'ExecStartPre=/usr/sbin/sshd -t' \
    >"$root/etc/systemd/system/ssh.service.d/host-keys.conf"
  # sshd waits a minute for a name server to name the caller otherwise, when there is none.
  echo 'UseDNS no' >"$root/etc/ssh/sshd_config.d/pylog.conf"
  # In a container systemd ignores the disks of /etc/fstab. The hosts have disks, so one service mounts them at boot.
  # It shares the mounts first, as systemd does on a real machine: an unmounted disk is then unmounted for all.
  printf '%s\n' '[Unit]' 'Description=Mount the disks of /etc/fstab' 'DefaultDependencies=no' \
    'After=local-fs-pre.target' 'Before=local-fs.target' \
    '[Service]' 'Type=oneshot' 'RemainAfterExit=yes' \
    'ExecStart=/bin/mount --make-rshared /' 'ExecStart=/bin/mount --all' \
    '[Install]' 'WantedBy=local-fs.target' >"$root/etc/systemd/system/fstab-disks.service"
  mkdir -p "$root/etc/systemd/system/local-fs.target.wants"
  ln -sf ../fstab-disks.service "$root/etc/systemd/system/local-fs.target.wants/fstab-disks.service"
  # A tenth of the file system, journald's own limit, would be a tenth of this machine's disk for every host.
  mkdir -p "$root/etc/systemd/journald.conf.d"
  printf '[Journal]\nSystemMaxUse=500M\n' >"$root/etc/systemd/journald.conf.d/size.conf"
  echo 'LANG=C.UTF-8' >"$root/etc/default/locale"
  # podman writes these at the start of each container.
  : >"$root/etc/machine-id"
  rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
  # A host in a container has no hardware to look after and no console to log in at.
  local unit
  for unit in getty.target console-getty.service systemd-udevd.service systemd-udev-trigger.service \
    systemd-networkd-wait-online.service systemd-timesyncd.service apt-daily.timer apt-daily-upgrade.timer \
    e2scrub_all.timer e2scrub_reap.service fstrim.timer; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
  done
  # As the role `packages` does before it installs them; a package of the same name that was there before is left alone.
  sed -nE 's/^  [a-z-]+: ([a-z-]+\.service)$/\1/p' "$ROLE_PACKAGES" | while read -r unit; do
    if [[ -e "$root/lib/systemd/system/$unit" ]]; then ln -sf /dev/null "$root/etc/systemd/system/$unit"; fi
  done
  # mmdebstrap leaves the control machine's proxy behind in this file; on a host it would not be reachable.
  rm -f "$root/etc/apt/apt.conf.d/99mmdebstrap"
}

build() {
  local proxy option
  local -a options=()
  proxy=$("$PYTHON3" local/hosts/apt_cache.py start)
  # No sync after every file, no manuals: four hosts install packages at once on this machine's disk.
  for option in force-unsafe-io 'path-exclude=/usr/share/doc/*' 'path-exclude=/usr/share/man/*' \
    'path-exclude=/usr/share/locale/*' 'path-include=/usr/share/doc/*/copyright'; do
    options+=(--dpkgopt="$option")
  done
  as_root rm -rf "$CACHE/image.tar" # of a run that was interrupted
  # The package lists stay in the image: apt on a fresh host need not fetch them first.
  # The essential hook: left out with the manuals, but the Java runtime's own installation wants to link into it.
  # shellcheck disable=SC2016  # mmdebstrap's own $1
  as_root mmdebstrap --quiet --format=tar --variant=minbase --skip=cleanup/apt/lists \
    --aptopt="Acquire::http::Proxy \"$proxy\"" --aptopt='Acquire::Languages "none"' "${options[@]}" \
    --include="$(IFS=,; echo "${PACKAGES[*]}")" \
    --essential-hook='mkdir -p "$1/usr/share/man/man1"' \
    --customize-hook="'$ROOT/local/hosts/image.sh' customize \"\$1\"" \
    bookworm "$CACHE/image.tar" "${SOURCES[@]}"
  as_root podman import --quiet --change 'CMD ["/sbin/init"]' --change 'STOPSIGNAL SIGRTMIN+3' \
    "$CACHE/image.tar" "$TAG" >/dev/null
  as_root rm -f "$CACHE/image.tar"
}

PYTHON3="${PYTHON3:-/usr/bin/python3}"
case "${1:-build}" in
  tag) echo "$TAG" ;;
  customize) customize "$2" ;;
  rm)
    # Of every recipe there was. Never by force: that would take another checkout's hosts along with their image.
    as_root podman images --format '{{.Repository}}:{{.Tag}}' localhost/pylog-host | while read -r image; do
      as_root podman rmi "$image" </dev/null >/dev/null 2>&1 || say "kept $image: another checkout's hosts use it"
    done
    ;;
  build)
    if as_root podman image exists "$TAG"; then exit 0; fi
    say "building the base image $TAG"
    build
    ;;
  *) die "usage: image.sh [build|tag|rm]" ;;
esac
