# A suite whose data is on separate file systems, each in a file, for disk failures. Needs Linux, root and loop devices. To be
# sourced after lib.sh; it creates $disks, and deletes it at the end.

PRODUCT='{"sku": "DISKS", "name": "Disks", "initial_quantity": 1000000, "price": {"amount": 100, "currency": "USD"}}'

skip() {
    say "skipped: $*"
    exit 0
}

# --- Disks ---------------------------------------------------------------------------------------------------------

make_disk() { # NAME SIZE: a new ext4 file system, mounted at $disks/NAME
    truncate -s "$2" "$disks/$1.img"
    mkfs.ext4 -q -F -m 0 "$disks/$1.img"
    mkdir "$disks/$1"
    plug_in "$1"
}

plug_in() { mount -o loop "$disks/$1.img" "$disks/$1"; } # NAME

pull_out() { # NAME: waits for processes with open files there
    local end=$((SECONDS + 30))
    until umount "$disks/$1" 2>/dev/null; do
        ((SECONDS < end)) || die "$disks/$1 is still in use: $(find /proc/[0-9]*/{cwd,fd} -lname "$disks/$1*" 2>/dev/null | head)"
        sleep 0.1
    done
}

throw_away() {
    trap - EXIT
    trap '' INT TERM HUP
    "$root/scripts/service" stop all >/dev/null 2>&1 || true
    local name
    for name in "${on_disks[@]}"; do umount "$disks/$name" 2>/dev/null || umount -l "$disks/$name" 2>/dev/null || true; done
    rm -rf "$disks"
}

# --- Orders --------------------------------------------------------------------------------------------------------

place_orders() { # SECONDS: eight customers at a time, for so long; keeps the ids of the orders that were accepted
    local end=$((SECONDS + $1))
    for _ in {1..8}; do
        while ((SECONDS < end)); do
            curl -sS -m 3 -X POST "$ORDER_URL/api/orders" -H 'content-type: application/json' \
                -d @"$disks/order.json" -w ' %{http_code}\n' || sleep 0.1
        done 2>/dev/null | sed -unE 's/.*"order_id":"([0-9a-f-]+)".* 201$/\1/p' >>"$disks/accepted" &
    done
    wait
}

sql() { "$postgres_bin/psql" -qXAt "$(database_url)" "$@"; }

lost_orders() { # counts accepted orders that are missing or not confirmed: all could be filled and paid
    sql -v ON_ERROR_STOP=1 <<SQL
create temporary table accepted (order_id uuid);
\\copy accepted from '$disks/accepted'
select count(*) from accepted a left join orders.customer_order o using (order_id)
where o.status is distinct from 'CONFIRMED';
SQL
}

# --- The suite -----------------------------------------------------------------------------------------------------

need_disks() { # PROGRAM...: further programs of the caller
    local program
    [[ $(uname) == Linux ]] || skip "disks can be broken on Linux only"
    ((EUID == 0)) || skip "only root may mount file systems"
    for program in mkfs.ext4 losetup "$@"; do
        command -v "$program" >/dev/null || skip "there is no $program"
    done
    losetup -f >/dev/null 2>&1 || skip "there is no loop device"
}

start_on_disks() { # SIZE NAME...: postgres, nats, gateway; each has a disk of its own
    local size=$1
    shift
    disks=$(mktemp -d /var/tmp/pas-de-trois-disks.XXXXXX)
    chmod 711 "$disks" # PostgreSQL, running as another user, must reach its folder in there.
    trap throw_away EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    : >"$disks/accepted"
    echo '{"customer_id": "disks", "payment_method": "tok_visa", "lines": [{"sku": "DISKS", "quantity": 1}]}' >"$disks/order.json"
    run=$disks/run on_disks=("$@")
    unset DATABASE_URL NATS_URL
    export SUITE_RUN_DIR=$run FAULTS_ENABLED=true
    own_ports 15000
    export POSTGRES_PORT=23432 NATS_PORT=23222 NATS_MONITOR_PORT=23822
    local name
    for name; do make_disk "$name" "$size"; done
    need_postgres
    choose_server_user
    mkdir -p "$run"
    chmod 711 "$run"
    install -d -m 700 ${server_user:+-o "$server_user"} "$disks/postgres/data"
    ln -s "$disks/nats" "$run/nats"
    if [[ -d $disks/gateway ]]; then ln -s "$disks/gateway/journal" "$run/gateway.journal"; fi
    remember POSTGRES_DATA "$disks/postgres/data"
    "$root/scripts/service" start suite
    load_settings
    curl -fsS -o /dev/null -m 5 -H 'content-type: application/json' "$INVENTORY_URL/api/products" -d "$PRODUCT" ||
        die "no product can be created"
}
