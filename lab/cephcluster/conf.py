# SPDX-License-Identifier: Apache-2.0
"""ceph.conf for a cluster that shares a small machine with a whole cloud.

Option names are those of https://docs.ceph.com/en/latest/rados/configuration/; the values that
differ from the defaults limit each daemon to a few hundred MB and give replies in milliseconds.
"""

GIB = 1024**3
MIB = 1024**2

# BlueStore's default RocksDB buffers are meant for servers: 16 MiB buffers keep a fresh OSD near
# 50 MB.
OSD_ROCKSDB = ','.join(
    [
        'compression=kNoCompression',
        f'write_buffer_size={16 * MIB}',
        'max_write_buffer_number=4',
        'min_write_buffer_number_to_merge=1',
        'recycle_log_file_num=4',
        'writable_file_max_buffer_size=0',
        f'compaction_readahead_size={2 * MIB}',
        'max_background_compactions=1',
        f'max_total_wal_size={128 * MIB}',
    ]
)
MON_ROCKSDB = ','.join(
    [
        'compression=kNoCompression',
        f'write_buffer_size={8 * MIB}',
        'level_compaction_dynamic_level_bytes=true',
    ]
)


def render(settings, paths, release):
    """Return the configuration of one cluster as text.

    :param settings: a layout.Settings.
    :param paths: the layout.Layout of its files.
    :param release: the major version of the installed Ceph.
    """
    sections = {
        'global': _global(settings),
        'client': {'keyring': f'{settings.conf_dir}/$cluster.$name.keyring'},
        'mon': _daemon(settings, paths) | _mon(paths),
        'mgr': _daemon(settings, paths) | _mgr(paths),
        'osd': _daemon(settings, paths) | _osd(settings, paths, release),
    }
    blocks = []
    for name, options in sections.items():
        lines = [f'[{name}]', *(f'{key} = {value}' for key, value in options.items())]
        blocks.append('\n'.join(lines) + '\n')
    return '\n'.join(blocks)


def mon_host(settings):
    address = settings.mon_addr
    return f'[v2:{address}:{settings.mon_port_v2}/0,v1:{address}:{settings.mon_port_v1}/0]'


def _global(settings):
    return {
        'fsid': settings.fsid,
        'mon_host': mon_host(settings),
        'mon_initial_members': 'a',
        'public_addr': settings.mon_addr,
        'cluster_addr': settings.mon_addr,
        'ms_bind_ipv6': 'false',
        'auth_cluster_required': 'cephx',
        'auth_service_required': 'cephx',
        'auth_client_required': 'cephx',
        'auth_allow_insecure_global_id_reclaim': 'false',
        # One machine: distribute copies over OSDs, not over hosts.
        'osd_crush_chooseleaf_type': 0,
        'osd_pool_default_size': 2,
        'osd_pool_default_min_size': 1,
        'osd_pool_default_pg_num': 16,
        'osd_pool_default_pg_autoscale_mode': 'off',
        # Format 2 clones need no protected snapshot and let the parent go to the trash.
        'rbd_default_clone_format': 2,
    }


def _daemon(settings, paths):
    quiet = ('ms', 'mon', 'monc', 'paxos', 'auth', 'mgr', 'mgrc', 'osd', 'objecter')
    stores = ('bluestore', 'bluefs', 'bdev', 'rocksdb')
    return {
        'run_dir': paths.run,
        'pid_file': f'{paths.run}/$type.$id.pid',
        'admin_socket': f'{paths.run}/$type.$id.asok',
        'log_file': f'{settings.log_dir}/$type.$id.log',
        'crash_dir': paths.data / 'crash',
    } | {f'debug_{name}': '0/0' for name in (*quiet, *stores)}


def _mon(paths):
    return {
        'mon_data': f'{paths.data}/mon.$id',
        'mon_cluster_log_file': f'{paths.data}/mon.$id/cluster.log',
        # Every snapshot changes the map; with the default of one second each would take a second.
        'paxos_propose_interval': 0.05,
        'paxos_min_wait': 0.01,
        'mon_data_avail_warn': 5,
        'mon_data_avail_crit': 2,
        'mon_osd_min_down_reporters': 1,
        'mon_osd_reporter_subtree_level': 'osd',
        'mon_osd_down_out_interval': 600,
        'mon_memory_autotune': 'false',
        'mon_rocksdb_options': MON_ROCKSDB,
        # Clients that librbd itself blocklists stay blocklisted as long as those that the storage
        # service fences; an entry cannot be extended. Never set rbd_blocklist_expire_seconds
        # instead: then no lock can be broken.
        'mon_osd_blocklist_default_expire': 7 * 86400,
        'mon_osd_initial_require_min_compat_client': 'mimic',
        'mon_max_pg_per_osd': 500,
        'mon_allow_pool_size_one': 'true',
        'mon_allow_pool_delete': 'true',
        'mon_warn_on_pool_no_redundancy': 'false',
        'mgr_initial_modules': 'iostat',
    }


def _mgr(paths):
    return {'mgr_data': f'{paths.data}/mgr.$id', 'mgr_stats_period': 2}


def _osd(settings, paths, release):
    options = {
        'osd_data': f'{paths.data}/osd.$id',
        'osd_objectstore': 'bluestore',
        'bluestore_block_size': settings.osd_gib * GIB,
        'bluestore_block_db_create': 'false',
        'bluestore_block_wal_create': 'false',
        'bluestore_cache_autotune': 'false',
        'bluestore_cache_size': 96 * MIB,
        'bluestore_rocksdb_options': OSD_ROCKSDB,
        'osd_memory_target': 896 * MIB,
        'osd_op_num_shards': 2,
        'osd_op_num_threads_per_shard': 1,
        'osd_map_cache_size': 20,
        'osd_min_pg_log_entries': 50,
        'osd_max_pg_log_entries': 100,
        # The device class and the position in the CRUSH map are set once, at creation: a loop
        # device always reports itself as a disk.
        'osd_class_update_on_start': 'false',
        'osd_crush_update_on_start': 'false',
        'osd_heartbeat_interval': 1,
        'osd_heartbeat_grace': 8,
        'osd_scrub_min_interval': 7 * 86400,
        'osd_deep_scrub_interval': 28 * 86400,
        'osd_max_backfills': 2,
        'osd_recovery_max_active': 4,
        'osd_recovery_sleep': 0,
        # The benchmark of mClock takes half a minute of disk time at every first start.
        'osd_mclock_skip_benchmark': 'true',
        'osd_snap_trim_sleep': 0.001,
        'osd_delete_sleep': 0.001,
        # Deleting data shrinks the sparse file.
        'bdev_enable_discard': 'true',
    }
    # Squid replaced the switch by a number of threads; Reef has either, by point release.
    if release < 19:
        options['bdev_async_discard'] = 'true'
    if release >= 18:
        options['bdev_async_discard_threads'] = 1
    return options
