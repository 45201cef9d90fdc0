# shellcheck shell=bash
# Sourced after lib.sh by checks that use Debian packages beside the installed ones.

skip() { # WHY: ends the check; as a failure with NO_SKIP
    if [[ ${NO_SKIP-} ]]; then die "$1, and NO_SKIP is set"; fi
    say "skipped: $1"
    exit 0
}

# This machine's own sources of Debian, as they are for that suite. Empty while it has no lists: apt-get update.
debian_sources() { # SUITE
    local own key=/usr/share/keyrings/debian-archive-keyring.gpg
    own=$(. /etc/os-release && printf %s "${VERSION_CODENAME-}")
    # shellcheck disable=SC2016 # it is apt that fills these in
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        sed -nE "s|^Debian ([^ ]+) $own([^ ]*) main\$|deb [signed-by=$key] \\1 $1\\2 main|p" | sort -u
}

debian_settings() { # how this machine's apt reaches its sources
    apt-config dump | grep -E '^Acquire::((http|https)::[A-Za-z:.-]+|Check-[A-Za-z-]+|Retries) "' || true
}

have_lists() { # root fetches the lists that a fresh machine does not have
    command -v apt-get >/dev/null || skip "this machine is not a Debian"
    if [[ -z $(debian_sources bookworm) ]] && ((EUID == 0)); then apt-get -qq update || true; fi
    [[ -n $(debian_sources bookworm) ]] || skip "apt-get has no list of Debian's packages (apt-get update)"
}

unpack_debian() { # SUITE FOLDER PACKAGE...: with all that they depend on but libc, into FOLDER; nothing is installed
    local suite=$1 folder=$2 state
    shift 2
    state=$(mktemp -d)
    mkdir -p "$state"/{lists,debs}/partial "$state/none"
    touch "$state/status"
    debian_sources "$suite" | grep " $suite main$" >"$state/sources.list"
    local apt=(apt-get -qq -y --no-install-recommends -o "Dir::State=$state" -o "Dir::State::status=$state/status"
        -o "Dir::State::Lists=$state/lists" -o "Dir::Cache=$state" -o "Dir::Cache::archives=$state/debs"
        -o "Dir::Etc::SourceList=$state/sources.list" -o "Dir::Etc::SourceParts=$state/none"
        -o "Dir::Etc::Preferences=/dev/null" -o "Dir::Etc::PreferencesParts=$state/none"
        -o Acquire::Languages=none -o Acquire::Retries=3 -o "APT::Sandbox::User=$(id -un)" -o Debug::NoLocking=true)
    if "${apt[@]}" update >&2 && "${apt[@]}" --download-only install "$@" >&2; then
        rm -f "$state"/debs/{libc6,libc-bin}_*.deb
        mkdir -p "$folder.new"
        local deb
        for deb in "$state"/debs/*.deb; do dpkg-deb --fsys-tarfile "$deb" | tar -C "$folder.new" -x --keep-directory-symlink; done
        rm -rf "$folder"
        mv "$folder.new" "$folder"
    fi
    rm -rf "$state"
    [[ -d $folder ]]
}

compose_v1=$root/.run/tools/compose-v1

unpack_compose() { # SUITE FOLDER
    if [[ -d $2 ]]; then return; fi
    have_lists
    say "unpacking docker-compose (Debian's package of $1) into .run/tools"
    unpack_debian "$1" "$2" docker-compose || skip "docker-compose is not available"
}

python() { # ARGUMENT...: the one unpacked with version 1 of Compose, which is written in it; it has PyYAML
    local IFS=: libraries=("$compose_v1"/usr/lib/*-linux-gnu* "$compose_v1"/lib/*-linux-gnu*)
    LD_LIBRARY_PATH="${libraries[*]}" PYTHONHOME=$compose_v1/usr PYTHONPATH=$compose_v1/usr/lib/python3/dist-packages \
        PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1 "$compose_v1/usr/bin/python3" -W ignore "$@"
}
