#!/usr/bin/env bash
# The disk of the virtual machines: the image that `make up` makes its hosts from, and what a container has no need of:
# a kernel, udev, a network of its own. Other people's Python packages are in it as Debian's are, by the script of role
# `release`: emulated, each machine would compile them for minutes. Kept under a name that holds the recipe, as that image is.
#   machine_image.sh       makes it unless it is there
#   machine_image.sh tag   prints its directory, which has root.img, vmlinuz and initrd.img
# shellcheck source-path=SCRIPTDIR
. "$(dirname "$0")/../lib.sh"

export HOST_IMAGE=packages
BASE=$(local/hosts/image.sh tag)
INSTALL="$ROOT/roles/release/files/install.sh"
TARGET="$CACHE/machine-${BASE##*-}-$(hash_of "$ROOT/local/hosts/machine_image.sh" "$INSTALL" "$ROOT/requirements/broker.txt")"
DISK=4G
PACKAGES=(linux-image-cloud-amd64 initramfs-tools udev zstd)
# What local/hosts/image.sh switches off or puts in because its hosts are containers.
OF_CONTAINERS=(
  getty.target console-getty.service systemd-udevd.service systemd-udev-trigger.service
  systemd-networkd-wait-online.service ssh.service.d fstab-disks.service local-fs.target.wants/fstab-disks.service
)

# Runs as root in a mount namespace of its own, which ends with it.
install_kernel() {
  local root=$1 proxy=$2
  mount -t proc proc "$root/proc"
  mount --bind /dev "$root/dev"
  # Known before the kernel's own installation makes its first RAM disk. Emulated, a megabyte more is a second of the boot.
  mkdir -p "$root/etc/initramfs-tools/conf.d"
  printf 'MODULES=list\nCOMPRESS=zstd\n' >"$root/etc/initramfs-tools/conf.d/pylog"
  in_root "$root" apt-get -q -o "Acquire::http::Proxy=$proxy" update
  in_root "$root" apt-get -q -y -o "Acquire::http::Proxy=$proxy" install --no-install-recommends "${PACKAGES[@]}"
  printf '%s\n' virtio_pci virtio_blk ext4 crc32c >>"$root/etc/initramfs-tools/modules"
  in_root "$root" update-initramfs -u
  in_root "$root" systemctl --quiet enable systemd-networkd.service
  (cd "$root/etc/systemd/system" && rm -rf "${OF_CONTAINERS[@]}")
  # Emulated, a disk may take longer to appear, and a service to start, than anybody waits for a real one.
  mkdir -p "$root/etc/systemd/system.conf.d"
  printf '[Manager]\nDefaultTimeoutStartSec=900\nDefaultDeviceTimeoutSec=900\n' >"$root/etc/systemd/system.conf.d/patience.conf"
  # Each login would start a manager of services for its user, which emulated takes longer than what the login is for.
  sed -i '/pam_systemd/d' "$root/etc/pam.d/common-session"
  # local/hosts/machines.py writes these into each machine's disk.
  rm -f "$root"/etc/{hostname,hosts,fstab,resolv.conf}
  mkdir -p "$root/root/.ssh"
  chmod 700 "$root/root/.ssh"
}

# install_packages ROOT ARCHIVE NAME: what the role finds there, it does not install again.
install_packages() {
  local root=$1 archive=$2 target="/opt/pylog/bases/$3"
  mkdir -p "$root/opt/pylog/bases"
  cp "$archive" "$root/opt/pylog/base.tar"
  in_root "$root" sh -s /opt/pylog/base.tar "$target" "$target" --compile <"$INSTALL"
}

# Nothing of who calls goes along: pip and apt would heed it.
in_root() { chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LANG=C.UTF-8 "${@:2}"; }

build() {
  local root="$CACHE/machine.root" part="$CACHE/machine.part" log="$CACHE/machine.log" proxy container pack
  local/hosts/image.sh
  proxy=$("${PYTHON3:-/usr/bin/python3}" local/hosts/apt_cache.py start)
  pack=$("$VENV/bin/python" -m pylog.ops.wheelhouse "$STATE/wheelhouse/broker.txt" "$CACHE/releases")
  as_root rm -rf "$root" "$part" # of a run that was interrupted
  mkdir "$root" "$part"
  container=$(as_root podman create --label "pylog.checkout=$ROOT" "$BASE")
  as_root podman export "$container" | as_root tar -x --xattrs --xattrs-include='*' -C "$root"
  as_root podman rm "$container" >/dev/null
  as_root unshare --mount --pid --fork "$ROOT/local/hosts/machine_image.sh" install "$root" "$proxy" \
    "$(jq -r .base_archive <<<"$pack")" "$(jq -r .base <<<"$pack")" >"$log" 2>&1 ||
    die "the kernel or the packages were not installed: $(tail -n 5 "$log")"
  as_root cp --dereference "$root/vmlinuz" "$root/initrd.img" "$part"
  # Filled from the directory: neither a loop device, nor partitions, nor a boot loader.
  as_root /usr/sbin/mke2fs -q -t ext4 -d "$root" "$part/root.img" "$DISK"
  as_root chown -R "$(id -u):$(id -g)" "$part"
  as_root rm -rf "$root" "$CACHE"/machine-*
  mv "$part" "$TARGET"
}

case "${1:-build}" in
  tag) echo "$TARGET" ;;
  install)
    install_kernel "$2" "$3"
    install_packages "$2" "$4" "$5"
    ;;
  build)
    [[ ! -d "$TARGET" ]] || exit 0
    say "making the machines' disk $TARGET"
    build
    ;;
  *) die "usage: machine_image.sh [build|tag]" ;;
esac
