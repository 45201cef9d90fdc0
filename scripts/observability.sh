# shellcheck shell=bash
# Sourced behind lib.sh: where Prometheus and Alertmanager are. Neither is installed, because Debian's packages would
# start servers for the whole machine.

find_prometheus() { # sets prometheus and promtool
    local candidate
    [[ -z ${prometheus-} ]] || return 0
    for candidate in "${PROMETHEUS_BIN-}" "$(command -v prometheus || true)" "$root/.run/tools/usr/bin/prometheus"; do
        if [[ -n $candidate && -x $candidate ]]; then
            prometheus=$candidate
            promtool=$(dirname "$candidate")/promtool
            return 0
        fi
    done
    return 1
}

find_alertmanager() { # sets alertmanager
    local candidate
    [[ -z ${alertmanager-} ]] || return 0
    for candidate in "${ALERTMANAGER_BIN-}" "$(command -v prometheus-alertmanager || true)" "$(command -v alertmanager || true)" \
        "$root/.run/tools/usr/bin/prometheus-alertmanager"; do
        if [[ -n $candidate && -x $candidate ]]; then
            alertmanager=$candidate
            return 0
        fi
    done
    return 1
}

need_prometheus() {
    find_prometheus && return
    say "unpacking prometheus (Debian's package) into .run/tools"
    unpack_package prometheus || true
    find_prometheus || die "found no prometheus: install version 2.42 or later (Debian, Ubuntu: apt-get install prometheus), or set PROMETHEUS_BIN"
}

need_alertmanager() {
    find_alertmanager && return
    say "unpacking prometheus-alertmanager (Debian's package) into .run/tools"
    unpack_package prometheus-alertmanager || true
    find_alertmanager || die "found no alertmanager: install version 0.25 or later (Debian, Ubuntu: apt-get install prometheus-alertmanager), or set ALERTMANAGER_BIN"
}

unpack_package() { # NAME: its files into .run/tools; nothing of it is started
    local folder
    command -v apt-get >/dev/null || return 1
    folder=$(mktemp -d)
    mkdir -p "$root/.run/tools"
    (
        cd "$folder" || exit 1
        apt_lists
        apt-get -qq download -o APT::Sandbox::User="$(id -un)" "$1" >&2 && dpkg -x "$1"_*.deb "$root/.run/tools"
    )
    rm -rf "$folder"
}
