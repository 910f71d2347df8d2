#!/usr/bin/env bash
# Proves the README's commands on a bare distribution. scripts/check-fresh-root.sh SUITE [COMMAND...]
#
# SUITE is bookworm, trixie or noble. A minimal root is made with debootstrap in a temporary folder, a clone of the last
# commit is copied in, and each COMMAND is run there by a shell (default: the two commands of the README). Needs root,
# debootstrap, and about 3 GB. The mirror is the one in this machine's own apt sources, if they are of the same
# distribution; DEBOOTSTRAP_MIRROR=URL names another. Where this machine lacks the other distribution's keyring,
# debootstrap says so and goes on; apt in the new root has the keys and checks.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

suite=${1:-}
case $suite in
  bookworm | trixie) distribution=debian components=main rules=sid ;;
  noble) distribution=ubuntu components=main,universe rules=gutsy ;;
  *) die "unknown suite '$suite': allowed are bookworm, trixie and noble" ;;
esac
shift
if [ $# -gt 0 ]; then
  commands=("$@")
else
  commands=('apt-get update && apt-get install -y make && make demo' 'apt-get update && apt-get install -y make && make test')
fi

[ "$(id -u)" -eq 0 ] || die "debootstrap and chroot need root"
command -v debootstrap >/dev/null || die "debootstrap is not installed: apt-get install -y debootstrap"

mirror=${DEBOOTSTRAP_MIRROR:-}
if [ -z "$mirror" ]; then
  # shellcheck source=/dev/null
  mirror=$(
    . /etc/os-release
    if [ "$ID" = $distribution ]; then
      apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        awk -v release="$VERSION_CODENAME" '$2 == release && $3 == "main" { print $1; exit }'
    fi
  )
fi
[ -n "$mirror" ] || die "this machine's apt sources have no $distribution mirror for $suite: give one as DEBOOTSTRAP_MIRROR"

work=$(mktemp -d)
# Everything is mounted in a mount namespace of its own, so nothing is left mounted below this folder here.
trap 'rm -rf --one-file-system "$work"' EXIT
fresh=$work/root

log=$work/debootstrap.log
# All suites of a distribution share their rules, but an older debootstrap does not know the newer ones by name.
quietly "debootstrap $suite" "$log" debootstrap --variant=minbase --components="$components" "$suite" "$fresh" "$mirror" $rules

# How this machine reaches its mirrors and its package index: proxies, date checks, certificates.
apt-config dump | grep -E '^Acquire::(http|https|ftp|Check-)' >"$fresh/etc/apt/apt.conf.d/99machine" || true
cp --dereference /etc/resolv.conf /etc/hosts "$fresh/etc/" 2>/dev/null || true
settings=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 CI=true)
while IFS= read -r name; do settings+=("$name=${!name}"); done < <(compgen -e | grep -E '^(PIP_|https?_proxy$|no_proxy$)')
# Not below /etc/ssl, where installing ca-certificates writes the distribution's own.
if [ -n "${PIP_CERT:-}" ]; then
  install -D -m 644 "$PIP_CERT" "$fresh/opt/certificates.pem"
  settings+=(PIP_CERT=/opt/certificates.pem)
fi

git clone --quiet "file://$root" "$fresh/opt/longhaul"

# Run in a mount and process namespace of its own. Without /proc, nproc and free memory would be unknown; /dev of a new
# root has neither terminals, shared memory nor the links into /proc.
inside='set -e
mount -t proc proc "$1/proc"
mkdir -p "$1/dev/shm" "$1/dev/pts"
mount -t tmpfs tmpfs "$1/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts"
ln -sf pts/ptmx "$1/dev/ptmx"
ln -sfn /proc/self/fd "$1/dev/fd"
exec chroot "$1" /usr/bin/env -i "${@:3}" /bin/sh -c "cd /opt/longhaul && $2"'
for command in "${commands[@]}"; do
  printf '\n== %s: %s\n' "$suite" "$command"
  begin=$SECONDS
  unshare --mount --pid --fork --kill-child bash -c "$inside" bash "$fresh" "$command" "${settings[@]}" </dev/null ||
    die "on $suite this failed after $((SECONDS - begin)) s: $command"
  printf '%s: %d s\n' "$command" $((SECONDS - begin))
done
printf '\n%s: %d of %d commands passed\n' "$suite" ${#commands[@]} ${#commands[@]}
