# SPDX-License-Identifier: Apache-2.0
"""The pools of the service, and validation of the names in a request."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.storage import image_types

#: The names that librbd accepts, without separators and control characters.
_NAME = re.compile(r'[^/@\x00-\x1f\x7f]{1,200}')
_IMAGE_ID = re.compile(r'[0-9a-zA-Z]{1,64}')
_OBJECT_BYTES = [2**exponent for exponent in range(12, 26)]
_FEATURES = image_types.DEFAULT_FEATURES | {'data-pool', 'journaling', 'operations', 'striping'}


@dataclasses.dataclass(frozen=True)
class Pools:
    """The pools that the operator configures for the service.

    :param images: pools with images and with their lock stores
    :param data: erasure-coded pools, for the data of images only
    :param data_pools: the data pools of new images, by pool; none if the data is in the same pool
    :param tiers: the pools of each tier, by its name
    """

    images: tuple[str, ...]
    data: tuple[str, ...] = ()
    data_pools: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tiers: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def check(self, *arguments: Any) -> None:
        """Refuse arguments with an invalid name or with a pool that is not the service's.

        :param arguments: names of images and snapshots, options, tasks; None is accepted
        :raises InvalidRequestError: the message names the first invalid argument
        """
        for argument in arguments:
            if argument is not None and not dataclasses.is_dataclass(argument):
                raise exceptions.InvalidRequestError(f'{argument!r}: is of the wrong type')
            for problem in self._problems(argument):
                raise exceptions.InvalidRequestError(problem)

    def check_pool(self, pool: str) -> None:
        """Refuse a pool that is not an image pool of the service.

        :raises InvalidRequestError: it is not
        """
        self.check(image_types.ImageRef(pool, 'any'))

    def check_image_id(self, image_id: str) -> None:
        """Refuse an invalid image id.

        :raises InvalidRequestError: the id is invalid
        """
        if not _IMAGE_ID.fullmatch(image_id):
            raise exceptions.InvalidRequestError(
                f'image id {image_id!r}: must be 1 to 64 letters and digits'
            )

    def options_for(
        self, image: image_types.ImageRef, options: image_types.ImageOptions | None
    ) -> image_types.ImageOptions:
        """Return the options of a new image: the given ones, or those of its pool's tier."""
        return options or image_types.ImageOptions(data_pool=self.data_pools.get(image.pool))

    def of_tier(self, name: str) -> tuple[str, ...]:
        """Return the pools of a tier.

        :raises InvalidRequestError: there is no such tier
        """
        if name not in self.tiers:
            known = ', '.join(sorted(self.tiers)) or 'none, since option pools is set'
            raise exceptions.InvalidRequestError(f'tier {name}: does not exist; known are {known}')
        return self.tiers[name]

    def _problems(self, argument: Any) -> Iterator[str]:
        if isinstance(argument, (image_types.ImageRef, image_types.SnapshotRef)):
            if argument.pool not in self.images:
                yield self._not_ours(argument.pool, self.images)
        if isinstance(argument, image_types.ImageRef):
            yield from _name_problems('image', argument.name)
        elif isinstance(argument, image_types.SnapshotRef):
            yield from _name_problems('image', argument.image)
            yield from _name_problems('snapshot', argument.name)
        elif isinstance(argument, image_types.ImageOptions):
            yield from self._option_problems(argument)
        elif dataclasses.is_dataclass(argument):
            for field in dataclasses.fields(argument):
                yield from self._problems(getattr(argument, field.name))

    def _option_problems(self, options: image_types.ImageOptions) -> Iterator[str]:
        allowed = self.images + self.data
        if options.data_pool is not None and options.data_pool not in allowed:
            yield self._not_ours(options.data_pool, allowed)
        if options.object_bytes not in _OBJECT_BYTES:
            yield (
                f'object_bytes {options.object_bytes}: must be a power of two from 4 KiB to 32 MiB'
            )
        if unknown := options.features - _FEATURES:
            yield f'features {", ".join(sorted(unknown))}: are unknown'

    @staticmethod
    def _not_ours(pool: str, allowed: tuple[str, ...]) -> str:
        return f'pool {pool}: is not one of the pools of this service: {", ".join(allowed)}'


def _name_problems(kind: str, name: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f'{kind} {name!r}: must be 1 to 200 characters without / and @'
