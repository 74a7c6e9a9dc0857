# SPDX-License-Identifier: Apache-2.0
"""MySQL settings computed from the machine, the data volume and its storage tier.

:func:`tune` is a pure function: no clock, no files, no configuration. Nothing else in this package
and no template contains a sizing formula.

Sources, cited by their letter below:

A. MySQL 8.4 manual, "innodb_buffer_pool_size" (about 10 % more memory is used than requested) and
   "Configuring InnoDB Buffer Pool Size" (a multiple of chunk size times instances, rounded *up*
   by the server; one instance up to 1 GiB, else min(pool / chunk / 2, CPUs / 4, 64)).
B. MySQL 8.4 manual, "Optimizing InnoDB Disk I/O": buffer pool 50 to 75 % of memory.
C. MySQL 8.4 manual, "Enabling Automatic InnoDB Configuration for a Dedicated MySQL Server":
   redo log of CPUs / 2 GiB, at most 16 GiB.
D. MySQL 8.4 manual, "Configuring InnoDB I/O Capacity": at most the IOPS of the device; it limits
   background work only, so leave a part for the foreground.
E. MySQL 8.4 manual, "innodb_read_io_threads" (CPUs / 2, at least 4).
F. MySQL manual, "innodb_flush_method": O_DIRECT still calls fsync() for metadata, which XFS needs;
   O_DIRECT_NO_FSYNC loses file extensions on power loss there.
G. Amazon RDS for MySQL: max_connections = memory / 12 582 880, one for each 12 MiB. Here one for
   each 16 MiB, because connections with prepared statements were measured to need more.
H. Ceph has no 16 KiB atomic write through file system, virtio and librbd, so the doublewrite
   buffer stays on.
"""

import dataclasses

from oslo_utils import units

from trove_ceph import exceptions

GIB_IN_MIB = 1024
PAGE_KIB = 16

#: InnoDB starts with less, but no workload runs well with less.
MIN_BUFFER_POOL_MIB = 64
#: The smallest volume that holds an empty server, the smallest redo log and binary logs.
MIN_VOLUME_MIB = 1000


@dataclasses.dataclass(frozen=True)
class Tier:
    """The I/O operations per second (IOPS) that a storage tier grants to a volume."""

    iops_per_gib: float
    iops_floor: int
    iops_cap: int

    def volume_iops(self, size_mib: int) -> int:
        """Return the IOPS of a volume: those per GiB, not below the floor, not above the cap."""
        by_size = int(self.iops_per_gib * size_mib / GIB_IN_MIB)
        return min(max(by_size, self.iops_floor), max(self.iops_cap, self.iops_floor))


@dataclasses.dataclass(frozen=True)
class Machine:
    """The input of the tuning.

    :param ram_mib: memory of the flavor in MiB, including that of the guest's kernel
    :param vcpus: virtual CPUs of the flavor
    :param volume_mib: size of the data volume in MiB
    :param volume_iops: I/O operations per second that the storage tier grants to the volume
    """

    ram_mib: int
    vcpus: int
    volume_mib: int
    volume_iops: int


@dataclasses.dataclass(frozen=True)
class Tuning:
    """The result: sizes in MiB unless the name says otherwise."""

    buffer_pool_mib: int
    buffer_pool_chunk_mib: int
    buffer_pool_instances: int
    log_buffer_mib: int
    redo_log_mib: int
    io_capacity: int
    io_capacity_max: int
    read_io_threads: int
    write_io_threads: int
    max_connections: int
    table_open_cache: int
    temptable_mib: int
    tmp_table_mib: int
    binlog_budget_mib: int
    binlog_file_mib: int
    binlog_expire_sec: int
    lean: bool

    def mysqld_options(self) -> dict[str, int | str]:
        """Return the ``[mysqld]`` settings; byte sizes are plain numbers for SET GLOBAL."""
        options: dict[str, int | str] = {
            'innodb_buffer_pool_size': self.buffer_pool_mib * units.Mi,
            'innodb_buffer_pool_chunk_size': self.buffer_pool_chunk_mib * units.Mi,
            'innodb_buffer_pool_instances': self.buffer_pool_instances,
            'innodb_log_buffer_size': self.log_buffer_mib * units.Mi,
            'innodb_redo_log_capacity': self.redo_log_mib * units.Mi,
            # The maximum comes first, as it must never be below the capacity.
            'innodb_io_capacity_max': self.io_capacity_max,
            'innodb_io_capacity': self.io_capacity,
            'innodb_read_io_threads': self.read_io_threads,
            'innodb_write_io_threads': self.write_io_threads,
            'max_connections': self.max_connections,
            'table_open_cache': self.table_open_cache,
            'temptable_max_ram': self.temptable_mib * units.Mi,
            'tmp_table_size': self.tmp_table_mib * units.Mi,
            'max_heap_table_size': self.tmp_table_mib * units.Mi,
            'max_binlog_size': self.binlog_file_mib * units.Mi,
            'binlog_expire_logs_seconds': self.binlog_expire_sec,
        }
        if self.lean:
            options.update(_LEAN_OPTIONS)
        return options


#: Dynamic settings of :meth:`Tuning.mysqld_options` that depend on the volume, in the order of
#: SET GLOBAL. The server raises a maximum that is below the capacity, so the maximum is set both
#: before the capacity, for an increase, and after it, for a decrease.
VOLUME_OPTIONS = (
    'innodb_io_capacity_max',
    'innodb_io_capacity',
    'innodb_io_capacity_max',
    'innodb_redo_log_capacity',
    'max_binlog_size',
    'binlog_expire_logs_seconds',
)

# The Performance Schema stays on even on the smallest machine, because it has the replication
# status. There, the statistics that need most memory are off (MySQL 9.7 in 768 MiB: 55 instead of
# 104 MiB; in 2 GiB 230 MiB): memory by class, and everything by user, host and account.
_LEAN_OPTIONS: dict[str, int | str] = {
    'performance_schema_max_memory_classes': 0,
    'performance_schema_accounts_size': 0,
    'performance_schema_hosts_size': 0,
    'performance_schema_users_size': 0,
    'performance_schema_digests_size': 500,
    'performance_schema_events_statements_history_long_size': 100,
    'performance_schema_events_stages_history_long_size': 100,
    'performance_schema_events_waits_history_long_size': 100,
    'performance_schema_events_transactions_history_long_size': 100,
    'performance_schema_error_size': 0,
    'key_buffer_size': units.Mi,
}

# mysqld's own memory without buffer pool and connections: code, data dictionary, InnoDB's fixed
# structures and the Performance Schema. MySQL 9.7.4 needs 200 MiB if lean, 375 MiB otherwise, and
# 10 % more under load.
_MYSQLD_BASE_MIB = 230
_MYSQLD_GROWTH_MIB = 256
_MYSQLD_SHARE = 16
# Kernel, init, docker, containerd and the guest agent, and 1/32 of the memory above for page
# tables, the page cache of the binary logs and slab.
_SYSTEM_BASE_MIB = 320
_SYSTEM_SHARE = 32
# MySQL 9.7.4 under sysbench oltp_read_write: a connection needs 1.1 MiB if idle and 3.5 MiB if busy
# with fifty prepared statements. The estimate: all are connected, a quarter of them is busy.
_CONNECTION_MIB = 1.7
_RAM_MIB_PER_CONNECTION = 16
# InnoDB's overhead for managing the buffer pool (source A).
_POOL_OVERHEAD = 1.10
_POOL_SHARE = 0.75
_LEAN_BELOW_MIB = 4096
# Limit of a crash recovery at the tier's IOPS: restores and failovers begin with one.
_RECOVERY_SEC = 300


def tune(machine: Machine) -> Tuning:
    """Return the settings for one machine; the same input always gives the same output.

    The memory of the server fits into the flavor beside the operating system, docker and the agent
    (:func:`memory_mib`), and redo and binary logs fit on the volume beside an empty server.

    :raises FlavorTooSmallError: less than 64 MiB would be left for the buffer pool
    :raises VolumeTooSmallError: the volume cannot hold the logs
    """
    if machine.volume_mib < MIN_VOLUME_MIB:
        raise exceptions.VolumeTooSmallError(
            f'The data volume has {machine.volume_mib} MiB; MySQL needs at least '
            f'{MIN_VOLUME_MIB} MiB.'
        )
    ram = machine.ram_mib
    connections, log_buffer, temptable = _fixed_parts(ram)
    chunk, instances, pool = _buffer_pool(machine, connections, log_buffer, temptable)
    binlog_budget = binlog_budget_mib(machine.volume_mib)
    io_max = max(machine.volume_iops, 100)
    return Tuning(
        buffer_pool_mib=pool,
        buffer_pool_chunk_mib=chunk,
        buffer_pool_instances=instances,
        log_buffer_mib=log_buffer,
        redo_log_mib=_redo_log_mib(machine),
        # Half of the tier's IOPS for page flushing, all when the redo log fills (source D).
        io_capacity=max(io_max // 2, 100),
        io_capacity_max=io_max,
        read_io_threads=_clamp(machine.vcpus // 2, 4, 32),  # source E
        write_io_threads=_clamp(machine.vcpus // 2, 4, 32),
        max_connections=connections,
        table_open_cache=_clamp(ram // 2, 400, 16384),
        temptable_mib=temptable,
        tmp_table_mib=_clamp(ram // 128, 16, 128),
        binlog_budget_mib=binlog_budget,
        # At least eight files in the budget, so that a purge removes a small part only.
        binlog_file_mib=_clamp(binlog_budget // 8, 16, 1024),
        # Up to a week on large volumes, one day on the smallest ones.
        binlog_expire_sec=_clamp(machine.volume_mib // (8 * GIB_IN_MIB), 1, 7) * 86400,
        lean=ram < _LEAN_BELOW_MIB,
    )


def binlog_budget_mib(volume_mib: int) -> int:
    """Return the limit of closed binary logs on a volume in MiB: 15 %, up to 256 GiB."""
    return _clamp(volume_mib * 15 // 100, 128, 256 * GIB_IN_MIB)


def memory_mib(machine: Machine, tuning: Tuning) -> float:
    """Return the memory in MiB of the system and a server with all connections in use."""
    return (
        _system_mib(machine.ram_mib)
        + _mysqld_mib(machine.ram_mib)
        + tuning.buffer_pool_mib * _POOL_OVERHEAD
        + tuning.log_buffer_mib
        + tuning.temptable_mib
        + tuning.max_connections * _CONNECTION_MIB
    )


def smallest_ram_mib() -> int:
    """Return the least flavor memory in MiB, in steps of 32, that :func:`tune` accepts."""
    ram = 32
    while _pool_room_mib(ram, *_fixed_parts(ram)) < MIN_BUFFER_POOL_MIB:
        ram += 32
    return ram


def _fixed_parts(ram: int) -> tuple[int, int, int]:
    """Return connections (source G), log buffer and temporary table memory in MiB."""
    connections = _clamp(ram // _RAM_MIB_PER_CONNECTION, 32, 5000)
    return connections, _clamp(ram // 64, 16, 64), _clamp(ram // 32, 16, 4096)


def _system_mib(ram: int) -> int:
    return _SYSTEM_BASE_MIB + ram // _SYSTEM_SHARE


def _mysqld_mib(ram: int) -> int:
    growth = (ram - GIB_IN_MIB) // _MYSQLD_SHARE
    return _MYSQLD_BASE_MIB + _clamp(growth, 0, _MYSQLD_GROWTH_MIB)


def _pool_room_mib(ram: int, connections: int, log_buffer: int, temptable: int) -> int:
    fixed = _system_mib(ram) + _mysqld_mib(ram) + log_buffer + temptable
    return int((ram - fixed - connections * _CONNECTION_MIB) / _POOL_OVERHEAD)


def _buffer_pool(
    machine: Machine, connections: int, log_buffer: int, temptable: int
) -> tuple[int, int, int]:
    """Return chunk size in MiB, number of instances and pool size in MiB (sources A and B)."""
    ram = machine.ram_mib
    room = min(_pool_room_mib(ram, connections, log_buffer, temptable), int(ram * _POOL_SHARE))
    if room < MIN_BUFFER_POOL_MIB:
        raise exceptions.FlavorTooSmallError(
            f'The flavor has {ram} MiB of memory; MySQL needs at least {smallest_ram_mib()} MiB '
            f'(buffer pool would be {max(room, 0)} MiB, minimum {MIN_BUFFER_POOL_MIB}). '
            'Choose a larger flavor.'
        )
    chunk = 16 if room < GIB_IN_MIB else 128
    instances = 1
    if room > GIB_IN_MIB:
        instances = _clamp(min(room // chunk // 2, machine.vcpus // 4), 1, 64)
    # The server would round up and exceed the memory, so round down here.
    step = chunk * instances
    return chunk, instances, room // step * step


def _redo_log_mib(machine: Machine) -> int:
    by_cpus = _clamp(machine.vcpus * 512, 512, 16 * GIB_IN_MIB)  # source C
    by_recovery = machine.volume_iops * PAGE_KIB * _RECOVERY_SEC // 1024
    by_volume = machine.volume_mib // 10
    # InnoDB has 32 redo files; round to whole MiB per file.
    return max(min(by_cpus, by_recovery, by_volume) // 32 * 32, 64)


def _clamp(value: int, low: int, high: int) -> int:
    return min(max(value, low), high)
