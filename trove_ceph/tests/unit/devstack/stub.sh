#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# DevStack's functions, as far as the plugin calls them. Each records its call, and refuses a number
# of arguments that functions.txt does not allow. The variables are DevStack's and those of the
# plugins devstack-plugin-ceph and trove.

DEST=$ROOT/opt
DATA_DIR=$ROOT/opt/data
STACK_USER=$(id -un)
os_VENDOR=${HOST_VENDOR:-Debian}
PYTHON=$ROOT/bin/python
SYSTEMD_DIR=$ROOT/systemd
GLOBAL_VENV=${GLOBAL_VENV-True}
SERVICE_TIMEOUT=2
SERVICE_PASSWORD=service-secret
SERVICE_PROJECT_NAME=service
SERVICE_DOMAIN_NAME=Default
KEYSTONE_SERVICE_URI=http://192.0.2.1/identity
REGION_NAME=RegionOne
RABBIT_HOST=192.0.2.1
PRIVATE_NETWORK_NAME=private
CINDER_CONF=$ROOT/etc/cinder/cinder.conf
TEMPEST_CONFIG=$ROOT/etc/tempest.conf

ENABLE_CEPH_CINDER=${ENABLE_CEPH_CINDER-True}
ENABLE_CEPH_NOVA=${ENABLE_CEPH_NOVA-True}
CEPH_CONF_DIR=$ROOT/etc/ceph
CEPH_CONF_FILE=$CEPH_CONF_DIR/ceph.conf
CINDER_CEPH_USER=cinder
CINDER_CEPH_UUID=5b3b3b0e-4a3c-4a58-9f3e-3f0b6f0d7c11
CINDER_ENABLED_BACKENDS=${CINDER_ENABLED_BACKENDS-ceph}

TROVE_DIR=$DEST/trove
TROVE_CONF_DIR=$ROOT/etc/trove
TROVE_CONF=$TROVE_CONF_DIR/trove.conf
TROVE_UWSGI_CONF=$TROVE_CONF_DIR/trove-uwsgi.ini
TROVE_GUESTAGENT_CONF=$ROOT/etc/trove/trove-guestagent.conf
TROVE_HOST_GATEWAY=192.0.2.254
AMQP_PORT=5672

declare -A LEAST MOST
while read -r name least most _; do
    LEAST[$name]=$least
    MOST[$name]=$most
done < <(grep -v '^#' "$HERE/functions.txt")

function record {
    local name=$1 least most
    shift
    least=${LEAST[$name]}
    most=${MOST[$name]}
    printf '%s' "$name" >> "$ROOT/state/record"
    printf ' %s' "$@" >> "$ROOT/state/record"
    echo >> "$ROOT/state/record"
    if [[ -z "$least" || $# -lt $least || $# -gt $most ]]; then
        echo "$name takes no $# arguments" >&2
        exit 97
    fi
}

# Trove's plugin writes its files anew, and DevStack that of Cinder.
function devstack_configures_services {
    local backend
    printf '[DEFAULT]\ntaskmanager_manager = trove.taskmanager.manager.Manager\n' > "$TROVE_CONF"
    printf '[DEFAULT]\ntransport_url = rabbit://stackrabbit:x@192.0.2.254/\n' \
        > "$TROVE_GUESTAGENT_CONF"
    printf '[uwsgi]\nmodule = trove.cmd.app_wsgi:application\n' > "$TROVE_UWSGI_CONF"
    printf '[DEFAULT]\n' > "$CINDER_CONF"
    for backend in ${CINDER_ENABLED_BACKENDS//,/ }; do
        "configure_cinder_backend_${backend%%:*}" "${backend##*:}"
    done
}

function iniset {
    record iniset "$@"
    local text
    touch "$1"
    text=$(section=$2 option=$3 value=$4 awk '
        function put() { print ENVIRON["option"] " = " ENVIRON["value"]; done = 1 }
        /^\[/ { if (inside && !done) put(); inside = ($0 == "[" ENVIRON["section"] "]") }
        inside && $1 == ENVIRON["option"] && $2 == "=" { if (!done) put(); next }
        { print }
        END {
            if (!done && !inside) print "[" ENVIRON["section"] "]"
            if (!done) put()
        }' "$1")
    echo "$text" > "$1"
}

function configure_keystoneauth {
    record configure_keystoneauth "$@"
    iniset "$1" "$3" auth_type password
    iniset "$1" "$3" auth_url "$KEYSTONE_SERVICE_URI"
    iniset "$1" "$3" username "$2"
    iniset "$1" "$3" password "$SERVICE_PASSWORD"
    iniset "$1" "$3" user_domain_name "$SERVICE_DOMAIN_NAME"
    iniset "$1" "$3" project_name "$SERVICE_PROJECT_NAME"
    iniset "$1" "$3" project_domain_name "$SERVICE_DOMAIN_NAME"
}

function die {
    record die "$@"
    shift
    echo "[ERROR] $*" >&2
    exit 1
}

function is_service_enabled {
    record is_service_enabled "$@"
    local service
    for service in "$@"; do
        if [[ ",$ENABLED_SERVICES," == *",$service,"* ]]; then
            return 0
        fi
    done
    return 1
}

function enable_service {
    record enable_service "$@"
    if [[ ",$DISABLED_SERVICES," != *",$1,"* ]]; then
        ENABLED_SERVICES+=",$1"
    fi
}

function is_plugin_enabled {
    record is_plugin_enabled "$@"
    [[ ",$DEVSTACK_PLUGINS," == *",$1,"* ]]
}

function run_process {
    record run_process "$@"
    echo "$2" > "$SYSTEMD_DIR/devstack@$1.service"
}

function trueorfalse {
    record trueorfalse "$@"
    local value=${!2:-$1}
    case "${value,,}" in
        1|yes|true|enabled)
            echo True
            ;;
        *)
            echo False
            ;;
    esac
}

function vercmp {
    record vercmp "$@"
    [[ "$2" == ">=" && "$(printf '%s\n' "$1" "$3" | sort -V | head -n 1)" == "$3" ]]
}

function generate_hex_string {
    record generate_hex_string "$@"
    od -An -N"$1" -tx1 /dev/urandom | tr -d ' \n'
}

function get_python_exec_prefix {
    echo "$ROOT/bin"
}

function is_ubuntu {
    [[ "${HOST_PACKAGES:-deb}" == deb ]]
}

for name in define_plugin plugin_requires echo_summary install_package restart_service \
    setup_develop setup_logging stop_process; do
    eval "function $name { record $name \"\$@\"; }"
done
