# SPDX-License-Identifier: Apache-2.0
"""Trove's configuration manager for my.cnf, extended by the computed settings.

Trove writes three layers, of which a later one overrides an earlier one: the base file rendered by
the control plane, the files of the user's configuration group, and Trove's own settings. The
computed settings go into Trove's *pre-user* group between base file and configuration group. They
are written again with each base file, which Trove writes at creation, after a flavor resize (and
its revert) and at a rebuild.
"""

import collections.abc
import dataclasses
import hashlib
import os
import typing

from oslo_log import log as logging
from trove.common import stream_codecs
from trove.guestagent.common import configuration

from trove_ceph import exceptions
from trove_ceph.guestagent import option_files
from trove_ceph.mysql import tuning

LOG = logging.getLogger(__name__)

SERVER_SECTION = 'mysqld'
CHANGE_ID = 'trove-ceph'
#: The storage tier as set by the taskmanager, in a separate file that outlives the base file.
TIER_CHANGE_ID = 'storage-tier'
#: Section of the base file, ignored by mysqld, in which the template passes the flavor.
FACTS_SECTION = 'trove_ceph'

#: The size of the volume in MiB for which the settings were computed, beside them.
TUNED_VOLUME = 'tuned_volume_mib'

Measure = collections.abc.Callable[[int | None, int | None, tuning.Tier | None], tuning.Machine]

_GROUPS = (
    configuration.ConfigurationManager.USER_GROUP,
    configuration.ConfigurationManager.SYSTEM_PRE_USER_GROUP,
    configuration.ConfigurationManager.SYSTEM_POST_USER_GROUP,
)
_CODEC = stream_codecs.IniCodec(default_value='1', comment_markers=('#', ';', '!'))


class TunedConfigurationManager(configuration.ConfigurationManager):
    """Trove's configuration manager with the settings that :func:`tuning.tune` computes.

    :param override_strategy: writes the files of options
    :param measure: returns the machine from the flavor's memory in MiB and virtual CPUs, each None
        if the base file lacks it, and from the storage tier, None until it is known
    :param server_id: ``server_id`` of this server
    """

    def __init__(
        self,
        *args: typing.Any,
        override_strategy: option_files.OptionFiles,
        measure: Measure,
        server_id: int,
        **kwargs: typing.Any,
    ):
        super().__init__(*args, override_strategy=override_strategy, **kwargs)
        self._files = override_strategy
        self._measure = measure
        self._server_id = server_id

    def reset_configuration(self, options, remove_overrides=False):
        """Write the base file and then the computed settings.

        :raises FlavorTooSmallError: before anything is written
        :raises VolumeTooSmallError: before anything is written
        """
        if not isinstance(options, dict):
            computed = self._compute(_flavor_facts(options), self.stored_tier())
            if remove_overrides:
                for group in _GROUPS:
                    self._files.remove(group)
            self._files.write(self._base_config_path, options)
            self.refresh_cache()
            self._write(*computed)
        else:
            # The base class serialises a dict and calls this method again with the text.
            super().reset_configuration(options, remove_overrides=remove_overrides)

    def replace_system_override(
        self,
        options: typing.Mapping[str, typing.Any],
        change_id: str,
        pre_user: bool = False,
    ) -> None:
        """Replace a 'system' change as a whole; Trove's method extends it.

        :param options: by sections
        :param pre_user: the options of the user override it
        """
        group = self.SYSTEM_PRE_USER_GROUP if pre_user else self.SYSTEM_POST_USER_GROUP
        self._files.replace(group, change_id, options)
        self.refresh_cache()

    def retune(self) -> tuning.Tuning:
        """Compute and write the settings for the present base file, and return them."""
        return self.retune_for(self.stored_tier())

    def retune_for(self, tier: tuning.Tier | None) -> tuning.Tuning:
        """As :meth:`retune`, for an I/O rate that is not stored yet."""
        section = self.get_value(FACTS_SECTION, default={})
        facts = section.get('flavor_ram_mib'), section.get('flavor_vcpus')
        machine, computed = self._compute(facts, tier)
        self._write(machine, computed)
        return computed

    def restore(self) -> None:
        """Write the computed settings if a crash of an agent of an earlier release has lost them.

        They take effect at the next start of the server. A failure is logged only.
        """
        if not os.path.exists(self._base_config_path) or self.has_system_override(CHANGE_ID):
            return
        LOG.warning('The computed settings are missing; they are computed again')
        try:
            self.retune()
        except exceptions.TroveCephError as error:
            LOG.error('The computed settings are still missing: %s', error)

    def tuned_volume_mib(self) -> int | None:
        """Return the size of the volume for which the present settings were computed.

        None: an agent of an earlier release computed them.
        """
        found: int | None = self.get_value(TUNED_VOLUME, section=FACTS_SECTION)
        return found

    def store_tier(self, tier: tuning.Tier | None) -> None:
        """Store the I/O rate of the storage tier, from which :meth:`retune` computes; idempotent.

        :param tier: None: delete the stored rate
        """
        if tier is None:
            self.remove_system_override(TIER_CHANGE_ID)
        else:
            options = {FACTS_SECTION: dataclasses.asdict(tier)}
            self.replace_system_override(options, TIER_CHANGE_ID, pre_user=True)

    def stored_tier(self) -> tuning.Tier | None:
        """Return the stored I/O rate; None: there is none."""
        # Read the file: the cache does not exist before the first base file.
        if not self.has_system_override(TIER_CHANGE_ID):
            return None
        found = self._files.get(self.SYSTEM_PRE_USER_GROUP, TIER_CHANGE_ID)
        names = [field.name for field in dataclasses.fields(tuning.Tier)]
        stored = found.get(FACTS_SECTION, {})
        if not stored.keys() >= set(names):
            # A crash of an agent of an earlier release, which did not flush it, has emptied it.
            return None
        return tuning.Tier(**{name: stored[name] for name in names})

    def effective(self, key: str) -> int | str | None:
        """Return the value of ``key`` after a restart of the server; None: it is not set."""
        return self.get_value(key, section=SERVER_SECTION)

    def _compute(
        self, facts: tuple[int | None, int | None], tier: tuning.Tier | None
    ) -> tuple[tuning.Machine, tuning.Tuning]:
        machine = self._measure(*facts, tier)
        computed = tuning.tune(machine)
        LOG.info('Tuned MySQL for %s: %s', machine, computed)
        return machine, computed

    def _write(self, machine: tuning.Machine, computed: tuning.Tuning) -> None:
        options = {
            SERVER_SECTION: computed.mysqld_options() | {'server_id': self._server_id},
            FACTS_SECTION: {TUNED_VOLUME: machine.volume_mib},
        }
        self.replace_system_override(options, CHANGE_ID, pre_user=True)


def server_id_of(instance_id: str) -> int:
    """Return ``server_id`` of an instance: stable, and different between instances.

    Trove's own value is Python's ``hash()`` of the instance id, which differs between processes and
    would change with every flavor resize.
    """
    digest = hashlib.sha256(instance_id.encode()).digest()
    return int.from_bytes(digest[:4], 'big') % (2**32 - 1) + 1


def _flavor_facts(base_file: str) -> tuple[int | None, int | None]:
    section = _CODEC.deserialize(base_file).get(FACTS_SECTION, {})
    return section.get('flavor_ram_mib'), section.get('flavor_vcpus')
