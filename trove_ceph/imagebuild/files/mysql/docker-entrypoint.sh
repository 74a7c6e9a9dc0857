#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Starts mysqld by the conventions of the official MySQL image, and makes its first start safe to
# interrupt: SIGKILL or a power cut at any instant, followed by another start with the same
# settings, ends in the same database as an undisturbed first start.
#
# What each state of the data directory means to the next start:
#
#   first-start.staging/    a data directory is being made here; thrown away and begun anew
#   .first-start.commit/    it is complete (by one rename) and is being moved up, entry by entry;
#                           the rest is moved
#   .first-start.accounts   accounts and passwords may be missing.  mysqld gets the statements
#                           that make them as its init file, which it runs before it accepts
#                           anyone.  The last one marks root@localhost; once the mark is there,
#                           the statements do nothing.
#   none of these, but a database: an ordinary start, nothing is touched, except that a database
#                           without certificates gets some, in the same two directories
#
# The command make-keys makes the certificates of such a database, and the RSA key pair by which it
# receives passwords, before there is one: the next start that needs certificates takes them.
#
# The data directory comes from a template that was initialised when the image was built if the
# server's settings allow it, otherwise from mysqld --initialize-insecure.
set -Eeuo pipefail
shopt -s nullglob dotglob

readonly TEMPLATE=/usr/share/mysql-template
readonly NEW_KEYS=/etc/mysql/new-keys
readonly HOOKS=/docker-entrypoint-initdb.d
readonly ZONES=/usr/share/zoneinfo
readonly OWN_DIRECTORIES=(
    innodb-data-home-dir innodb-log-group-home-dir innodb-undo-directory innodb-doublewrite-dir
)

log() { printf '%s [entrypoint] %s\n' "$(date -u +%FT%TZ)" "$*" >&2; }
die() { log "ERROR: $*"; exit 1; }

# --- settings ---------------------------------------------------------------------------------

# Give NAME a value: its own, or the content of the file that NAME_FILE names, or nothing.
setting() {
    local name=$1 file_name=$1_FILE
    if [[ -n ${!file_name-} ]]; then
        [[ -z ${!name-} ]] || die "$name and $file_name exclude each other"
        [[ -r ${!file_name} ]] || die "$file_name: cannot read ${!file_name}"
        printf -v "$name" '%s' "$(<"${!file_name}")"
    else
        printf -v "$name" '%s' "${!name-}"
    fi
}

read_settings() {
    # An absent MYSQL_ROOT_HOST means any host, an empty one localhost only.
    if [[ -z ${MYSQL_ROOT_HOST+set} && -z ${MYSQL_ROOT_HOST_FILE+set} ]]; then
        MYSQL_ROOT_HOST=%
    fi
    local name
    for name in MYSQL_ROOT_HOST MYSQL_ROOT_PASSWORD MYSQL_DATABASE MYSQL_USER MYSQL_PASSWORD; do
        setting "$name"
    done
}

check_settings() {
    if [[ -z $MYSQL_ROOT_PASSWORD${MYSQL_ALLOW_EMPTY_PASSWORD-}${MYSQL_RANDOM_ROOT_PASSWORD-} ]]; then
        die "the database has no root password yet: set MYSQL_ROOT_PASSWORD," \
            "MYSQL_ALLOW_EMPTY_PASSWORD or MYSQL_RANDOM_ROOT_PASSWORD"
    fi
    [[ $MYSQL_USER != root ]] || die "MYSQL_USER=root: set root's password by MYSQL_ROOT_PASSWORD"
    [[ -z $MYSQL_USER || -n $MYSQL_PASSWORD ]] || die "MYSQL_USER needs MYSQL_PASSWORD"
}

# Ask the server for its effective options: files and arguments as it understands them.
declare -A OPTION
read_options() {
    local name value
    while read -r name value; do
        OPTION[$name]=$value
    done < <("$@" --verbose --help 2>/dev/null |
        awk '/^[a-z][a-z0-9-]*( |$)/ { name = $1; $1 = ""; print name, $0 }')
    if [[ -z ${OPTION[datadir]-} ]]; then
        "$@" --verbose --help 2>&1 >/dev/null | tail -n 5 >&2 || true
        die "mysqld does not accept its configuration"
    fi
    DATADIR=${OPTION[datadir]%/}
    SOCKET=${OPTION[socket]}
    # Not a hidden directory: InnoDB ignores files below those, and a server may run here.
    STAGING=$DATADIR/first-start.staging
    COMMIT=$DATADIR/.first-start.commit
    PENDING=$DATADIR/.first-start.accounts
}

# Print an option's value, an empty string for all that means "the default".
option() {
    local value=${OPTION[$1]-}
    case ${value%/} in
        '(No default value)' | . | "$DATADIR") ;;
        *) printf '%s' "$value" ;;
    esac
}

# --- accounts ---------------------------------------------------------------------------------

# Escape for use between single quotes in SQL with the default sql_mode.
escaped() {
    local text=${1//\\/\\\\}
    text=${text//\'/\\\'}
    printf '%s' "${text//$'\n'/\\n}"
}

# Print a statement wrapped so that the server skips it once the accounts are marked as made.
unless_marked() {
    printf "SET @statement = IF(@marked, 'DO 0', '%s');\n" "$(escaped "$1")"
    printf 'PREPARE statement FROM @statement;\nEXECUTE statement;\n'
}

readonly MARKED="SELECT COUNT(*) FROM mysql.user WHERE User = 'root' AND Host = 'localhost'
    AND User_attributes->>'\$.metadata.first_start' = 'done'"

# Print the statements that make the accounts; every one may be repeated.  They stay out of the
# binary log, so that they are no transactions of this server to its replicas.
accounts_sql() {
    local password database user account host
    password=$(escaped "$MYSQL_ROOT_PASSWORD")
    echo "SET SESSION sql_log_bin = 0;"
    echo "SET SESSION sql_mode = '';"
    echo "SET @marked = (${MARKED//$'\n'/});"
    unless_marked "ALTER USER 'root'@'localhost' IDENTIFIED BY '$password'"
    if [[ -n $MYSQL_ROOT_HOST && $MYSQL_ROOT_HOST != localhost ]]; then
        host="'root'@'$(escaped "$MYSQL_ROOT_HOST")'"
        unless_marked "CREATE USER IF NOT EXISTS $host IDENTIFIED BY '$password'"
        unless_marked "ALTER USER $host IDENTIFIED BY '$password'"
        unless_marked "GRANT ALL ON *.* TO $host WITH GRANT OPTION"
    fi
    database=${MYSQL_DATABASE//\`/\`\`}
    if [[ -n $database ]]; then
        unless_marked "CREATE DATABASE IF NOT EXISTS \`$database\`"
    fi
    if [[ -n $MYSQL_USER ]]; then
        account="'$(escaped "$MYSQL_USER")'@'%'"
        user="$account IDENTIFIED BY '$(escaped "$MYSQL_PASSWORD")'"
        unless_marked "CREATE USER IF NOT EXISTS $user"
        unless_marked "ALTER USER $user"
        if [[ -n $database ]]; then
            unless_marked "GRANT ALL ON \`${database//_/\\_}\`.* TO $account"
        fi
    fi
    unless_marked "ALTER USER 'root'@'localhost' ATTRIBUTE '{\"first_start\": \"done\"}'"
}

# Log in as root over a socket; SQL comes from standard input or from -e.
as_root() {
    local socket=$1
    shift
    MYSQL_PWD=$MYSQL_ROOT_PASSWORD mysql --no-defaults --protocol=socket --socket="$socket" \
        --user=root --comments "$@"
}

# Wait until the accounts are seen in the running server, then forget that they are pending.
confirm_accounts() {
    local server=$1 _
    for _ in {1..600}; do
        sleep 0.5
        kill -0 "$server" 2>/dev/null || return 0
        [[ -S $SOCKET ]] || continue
        if [[ $(as_root "$SOCKET" -NBe "$MARKED" 2>/dev/null) == 1 ]]; then
            rm -f "$PENDING"
            sync -f "$DATADIR"
            log "first start complete"
            return 0
        fi
    done
    log "root cannot log in with the given password; leaving $PENDING"
}

# --- the data directory -----------------------------------------------------------------------

has_database() { [[ -e $DATADIR/mysql.ibd || -e $DATADIR/ibdata1 || -d $DATADIR/mysql ]]; }

template_fits() {
    local name value
    [[ -f $TEMPLATE/data.tar ]] || return 1
    while read -r name value; do
        [[ $(option "$name") == "$value" ]] || return 1
    done <"$TEMPLATE/options"
}

initialize() {
    local name
    for name in "${OWN_DIRECTORIES[@]}"; do
        [[ -z $(option "$name") ]] ||
            die "${name//-/_} = $(option "$name"): only the data directory is supported"
    done
    "$@" --initialize-insecure --datadir="$STAGING" --skip-log-bin --init-file=/dev/null \
        --innodb-data-home-dir= --innodb-log-group-home-dir=./ --innodb-undo-directory=./
}

# Whether mysqld would make certificates for a database.
lacks_certificates() {
    local name
    for name in ca server-cert server-key; do
        [[ ! -e $DATADIR/$name.pem ]] || return 1
    done
    [[ $(option auto-generate-certs) == TRUE && -z $(option ssl-ca)$(option ssl-cert) ]]
}

# Make them in staging, with elliptic keys: its three RSA keys are most of a first start on an
# emulated processor.  Whatever goes wrong, mysqld makes its own.
make_certificates() {
    local -a key=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650)
    (
        cd "$STAGING"
        umask 077
        openssl req -x509 "${key[@]}" -subj '/CN=MySQL_Auto_Generated_CA_Certificate' \
            -keyout ca-key.pem -out ca.pem &&
            openssl req -x509 "${key[@]}" -subj '/CN=MySQL_Auto_Generated_Server_Certificate' \
                -addext basicConstraints=critical,CA:FALSE -CA ca.pem -CAkey ca-key.pem \
                -keyout server-key.pem -out server-cert.pem &&
            chmod 644 ca.pem server-cert.pem
    ) 2>/dev/null || rm -f "$STAGING"/{ca,server}-key.pem "$STAGING"/{ca,server-cert}.pem
}

# Make the keys of a database that comes later.
make_keys() {
    [[ ! -d $NEW_KEYS ]] || return 0
    STAGING=$NEW_KEYS.unfinished
    begin_staging
    make_certificates
    (
        cd "$STAGING"
        umask 077
        [[ -e server-key.pem ]] &&
            openssl genrsa -out private_key.pem 2048 &&
            openssl rsa -in private_key.pem -pubout -out public_key.pem &&
            chmod 644 public_key.pem
    ) 2>/dev/null || die "openssl cannot make the keys"
    mv -T "$STAGING" "$NEW_KEYS"
}

# Give the database in staging the keys that were made before, or make its certificates.
add_keys() {
    if [[ -d $NEW_KEYS ]] && cp "$NEW_KEYS"/* "$STAGING"; then
        return
    fi
    rm -f "$STAGING"/{private,public}_key.pem
    make_certificates
}

# Things that need a running server before anybody may see the database.
needs_private_server() {
    local hooks=("$HOOKS"/*)
    [[ ${#hooks[@]} -gt 0 || -n ${MYSQL_RANDOM_ROOT_PASSWORD-} || -n ${MYSQL_ONETIME_PASSWORD-} ||
        (-z ${MYSQL_INITDB_SKIP_TZINFO-} && -d $ZONES) ]]
}

# For hooks: feed SQL to the private server.  The name is the official image's.
docker_process_sql() {
    as_root "$PRIVATE/socket" ${MYSQL_DATABASE:+--database="$MYSQL_DATABASE"} "$@"
}

run_hooks() {
    local hook
    for hook in "$HOOKS"/*; do
        log "running $hook"
        case $hook in
            *.sh) if [[ -x $hook ]]; then "$hook"; else . "$hook"; fi ;;
            *.sql) docker_process_sql <"$hook" ;;
            *.sql.gz) gzip -dc "$hook" | docker_process_sql ;;
            *.sql.bz2) bzip2 -dc "$hook" | docker_process_sql ;;
            *.sql.xz) xz -dc "$hook" | docker_process_sql ;;
            *.sql.zst) zstd -dc "$hook" | docker_process_sql ;;
            *) log "ignoring $hook" ;;
        esac
    done
}

# Run a server on the staging directory that only this script reaches: accounts, time zones, hooks.
prepare_privately() {
    local server accounts _
    PRIVATE=$(mktemp -d)
    exec {accounts}< <(accounts_sql)
    "$@" --datadir="$STAGING" --socket="$PRIVATE/socket" --pid-file="$PRIVATE/pid" \
        --init-file="/dev/fd/$accounts" --skip-networking --mysqlx=OFF \
        --skip-log-bin --gtid-mode=OFF --enforce-gtid-consistency=OFF &
    server=$!
    exec {accounts}<&-
    until [[ -S $PRIVATE/socket ]] && as_root "$PRIVATE/socket" -e 'DO 0' 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || die "the server for the first start ended"
        sleep 0.5
    done
    if [[ -z ${MYSQL_INITDB_SKIP_TZINFO-} && -d $ZONES ]]; then
        log "loading time zones"
        mysql_tzinfo_to_sql "$ZONES" 2>/dev/null |
            as_root "$PRIVATE/socket" --force --database=mysql
    fi
    run_hooks
    if [[ -n ${MYSQL_ONETIME_PASSWORD-} ]]; then
        as_root "$PRIVATE/socket" -e "SELECT CONCAT('ALTER USER ', QUOTE(User), '@', QUOTE(Host),
            ' PASSWORD EXPIRE;') FROM mysql.user WHERE User = 'root'" -NB |
            as_root "$PRIVATE/socket"
    fi
    kill "$server"
    wait "$server" || die "the server for the first start did not stop cleanly"
    rm -rf "$PRIVATE"
    [[ -z ${MYSQL_RANDOM_ROOT_PASSWORD-} ]] || log "GENERATED ROOT PASSWORD: $MYSQL_ROOT_PASSWORD"
}

begin_staging() {
    rm -rf "$STAGING"
    mkdir -m 750 "$STAGING"
}

# Name what is in staging complete.
commit_staging() {
    # First: another database on this machine must not get the same ones, also after a kill.
    [[ ! -d $NEW_KEYS ]] || rm -rf "$NEW_KEYS"
    sync -f "$DATADIR"
    mv -T "$STAGING" "$COMMIT"
    sync -f "$DATADIR"
}

# Give certificates to a database that has none, such as a clone of a golden volume.
add_certificates() {
    begin_staging
    add_keys
    commit_staging
    move_up
}

# Make a complete data directory in staging, then name it complete.
make_database() {
    begin_staging
    if template_fits; then
        log "unpacking the initialised data directory"
        tar --extract --sparse --no-same-owner --file="$TEMPLATE/data.tar" --directory="$STAGING"
    else
        log "initialising a data directory"
        initialize "$@"
    fi
    if lacks_certificates; then
        add_keys
    fi
    if needs_private_server; then
        if [[ -n ${MYSQL_RANDOM_ROOT_PASSWORD-} ]]; then
            MYSQL_ROOT_PASSWORD=$(head -c 18 /dev/urandom | base64)
        fi
        prepare_privately "$@"
    else
        : >"$STAGING/${PENDING##*/}"
    fi
    commit_staging
}

# Move a complete database up.  The note that accounts are pending goes first: no server must
# start on the database without it.
move_up() {
    local -a entries
    if [[ -e $COMMIT/${PENDING##*/} ]]; then
        mv -T "$COMMIT/${PENDING##*/}" "$PENDING"
        sync -f "$DATADIR"
    fi
    entries=("$COMMIT"/*)
    # One after the other; after a kill, the rest is moved by the next start.
    [[ ${#entries[@]} -eq 0 ]] || mv -t "$DATADIR" "${entries[@]}"
    sync -f "$DATADIR"
    rmdir "$COMMIT"
}

# --- start ------------------------------------------------------------------------------------

# After a power cut the lock of the socket may name a process that is somebody else by now.
remove_stale_socket() {
    local pid
    [[ -e $SOCKET.lock ]] || return 0
    pid=$(<"$SOCKET.lock")
    if [[ $(cat "/proc/$pid/comm" 2>/dev/null) != mysqld ]]; then
        rm -f "$SOCKET" "$SOCKET.lock"
    fi
}

drop_root() {
    mkdir -p "$DATADIR" "${SOCKET%/*}"
    find "$DATADIR" "${SOCKET%/*}" \! -user mysql -exec chown mysql:mysql {} +
    exec setpriv --reuid=mysql --regid=mysql --clear-groups "$BASH_SOURCE" "$@"
}

start() {
    local init_sql own_init_file
    remove_stale_socket
    if [[ ! -e $PENDING ]]; then
        exec "$@"
    fi
    own_init_file=$(option init-file)
    exec {init_sql}< <(
        accounts_sql
        if [[ -n $own_init_file ]]; then
            cat "$own_init_file"
        fi
    )
    confirm_accounts $$ {init_sql}<&- &
    exec "$@" --init-file="/dev/fd/$init_sql"
}

main() {
    local argument
    if [[ $# -eq 0 || ${1:0:1} == - ]]; then
        set -- mysqld "$@"
    fi
    if [[ $1 == make-keys ]]; then
        make_keys
        return
    fi
    [[ $1 == mysqld ]] || exec "$@"
    for argument; do
        case $argument in
            -\? | -V | --help | --version | --print-defaults) exec "$@" ;;
        esac
    done
    read_options "$@"
    [[ $(id -u) != 0 ]] || drop_root "$@"
    mkdir -p "$DATADIR"
    if [[ -d $COMMIT ]]; then
        move_up
    fi
    if ! has_database; then
        read_settings
        check_settings
        make_database "$@"
        move_up
    elif [[ -e $PENDING ]]; then
        read_settings
        check_settings
    elif lacks_certificates; then
        add_certificates
    fi
    start "$@"
}

main "$@"
