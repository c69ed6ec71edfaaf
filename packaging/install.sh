#!/bin/sh
# Installs what stands in this archive below PREFIX (default /usr/local), the units for systemd, and the user of the services. As root; ./install.sh --remove undoes it,
# apart from the user, /etc/noctule and /var/lib/noctule.
set -eu

prefix=${PREFIX:-/usr/local}
here=$(dirname "$0")
cd "$here"
[ "$(id -u)" -eq 0 ] || { echo "install.sh: run it as root, or copy bin/noctule to where you like: it needs nothing else" >&2; exit 1; }

list() { find bin share -type f; }

if [ "${1:-}" = --remove ]; then
    if [ -d /run/systemd/system ]; then
        systemctl disable --now noctule-node noctule-relay noctule-recv noctule-serve 2>/dev/null || true
    fi
    list | while read -r file; do rm -f "$prefix/$file"; done
    rm -f /etc/systemd/system/noctule-node.service /etc/systemd/system/noctule-relay.service /etc/systemd/system/noctule-recv.service /etc/systemd/system/noctule-serve.service
    echo "removed; /etc/noctule, /var/lib/noctule and the user noctule are still there"
    exit 0
fi

list | while read -r file; do
    mode=0644
    [ "$file" = bin/noctule ] && mode=0755
    install -D -m "$mode" "$file" "$prefix/$file"
done
if command -v systemctl >/dev/null; then
    getent passwd noctule >/dev/null || useradd --system --user-group --home-dir /etc/noctule --no-create-home --shell /usr/sbin/nologin noctule
    [ -d /etc/noctule ] || install -d -o root -g noctule -m 0750 /etc/noctule
    for unit in systemd/*.service; do install -m 0644 "$unit" /etc/systemd/system/; done
    [ -e /etc/default/noctule-recv ] || install -D -m 0644 systemd/noctule-recv.default /etc/default/noctule-recv
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
fi
echo "installed below $prefix; try: noctule --version"
