# SPDX-License-Identifier: Apache-2.0
"""my.cnf as Trove's configuration manager keeps it, with the computed settings added.

Trove writes three layers, and a later one wins: the base file rendered by the control plane, the
files of the user's configuration group, and Trove's own settings. The computed settings go into
Trove's *pre-user* group between base file and configuration group. They are written again each
time the base file is, which is what Trove does at creation, after a flavor resize (and when one is
reverted) and at a rebuild.
"""

import collections.abc
import dataclasses
import hashlib
import typing

from oslo_log import log as logging
from trove.common import stream_codecs
from trove.guestagent.common import configuration

from trove_ceph.mysql import tuning

LOG = logging.getLogger(__name__)

SERVER_SECTION = 'mysqld'
CHANGE_ID = 'trove-ceph'
#: What the taskmanager says of the storage tier: a file of its own, which outlives the base file.
TIER_CHANGE_ID = 'storage-tier'
#: Section of the base file, ignored by mysqld, in which the template passes on the flavor.
FACTS_SECTION = 'trove_ceph'

Measure = collections.abc.Callable[[int | None, int | None, tuning.Tier | None], tuning.Machine]

_CODEC = stream_codecs.IniCodec(default_value='1', comment_markers=('#', ';', '!'))


class TunedConfigurationManager(configuration.ConfigurationManager):
    """Trove's configuration manager that adds what :func:`tuning.tune` computes.

    :param measure: returns the machine; given the flavor's memory in MiB and virtual CPUs, or None
        for each that the base file does not tell, and the storage tier, None until it is known
    :param server_id: replication identity of this server
    """

    def __init__(
        self,
        *args: typing.Any,
        measure: Measure,
        server_id: int,
        **kwargs: typing.Any,
    ):
        super().__init__(*args, **kwargs)
        self._measure = measure
        self._server_id = server_id

    def reset_configuration(self, options, remove_overrides=False):
        """Write the base file, then the computed settings that go with it.

        :raises FlavorTooSmallError: before anything is written
        :raises VolumeTooSmallError: before anything is written
        """
        if not isinstance(options, dict):
            computed = self._compute(_flavor_facts(options))
            super().reset_configuration(options, remove_overrides=remove_overrides)
            self._write(computed)
        else:
            # The base class serialises a dict and calls this method again with the text.
            super().reset_configuration(options, remove_overrides=remove_overrides)

    def retune(self) -> tuning.Tuning:
        """Compute and write the settings again for the base file as it is, and return them."""
        section = self.get_value(FACTS_SECTION, default={})
        computed = self._compute((section.get('flavor_ram_mib'), section.get('flavor_vcpus')))
        self._write(computed)
        return computed

    def keep_tier(self, tier: tuning.Tier | None) -> bool:
        """Keep what the storage tier grants; return whether that is new.

        The settings that follow from it are computed at the next :meth:`retune`.

        :param tier: None to forget what was kept
        """
        if tier == self._kept_tier():
            return False
        self.remove_system_override(TIER_CHANGE_ID)
        if tier is not None:
            options = {FACTS_SECTION: dataclasses.asdict(tier)}
            self.apply_system_override(options, TIER_CHANGE_ID, pre_user=True)
        return True

    def _kept_tier(self) -> tuning.Tier | None:
        # Not of the cache: there is none before the base file is first written.
        if not self.has_system_override(TIER_CHANGE_ID):
            return None
        kept = self._override_strategy.get(self.SYSTEM_PRE_USER_GROUP, TIER_CHANGE_ID)
        names = [field.name for field in dataclasses.fields(tuning.Tier)]
        return tuning.Tier(**{name: kept[FACTS_SECTION][name] for name in names})

    def effective(self, key: str) -> int | str | None:
        """Return the value a restarted server would have for ``key``, None if it is not set."""
        return self.get_value(key, section=SERVER_SECTION)

    def _compute(self, facts: tuple[int | None, int | None]) -> tuning.Tuning:
        machine = self._measure(*facts, self._kept_tier())
        computed = tuning.tune(machine)
        LOG.info('Tuned MySQL for %s: %s', machine, computed)
        return computed

    def _write(self, computed: tuning.Tuning) -> None:
        options = computed.mysqld_options() | {'server_id': self._server_id}
        # Applying merges into an existing file, so settings that are no longer computed would stay.
        self.remove_system_override(CHANGE_ID)
        self.apply_system_override({SERVER_SECTION: options}, CHANGE_ID, pre_user=True)


def server_id_of(instance_id: str) -> int:
    """Return the replication identity of an instance: stable, and different between instances.

    Trove's own value comes from Python's ``hash()`` of the id, which differs in each process, so it
    would change with every flavor resize.
    """
    digest = hashlib.sha256(instance_id.encode()).digest()
    return int.from_bytes(digest[:4], 'big') % (2**32 - 1) + 1


def _flavor_facts(base_file: str) -> tuple[int | None, int | None]:
    section = _CODEC.deserialize(base_file).get(FACTS_SECTION, {})
    return section.get('flavor_ram_mib'), section.get('flavor_vcpus')
