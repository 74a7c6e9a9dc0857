# SPDX-License-Identifier: Apache-2.0
"""Which pools the service works on, and what a request may name."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.storage import image_types

#: What librbd takes, less what separates the parts of a place, and control characters.
_NAME = re.compile(r'[^/@\x00-\x1f\x7f]{1,200}')
_IMAGE_ID = re.compile(r'[0-9a-zA-Z]{1,64}')
_OBJECT_BYTES = [2**exponent for exponent in range(12, 26)]
_FEATURES = image_types.DEFAULT_FEATURES | {'data-pool', 'journaling', 'operations', 'striping'}


@dataclasses.dataclass(frozen=True)
class Pools:
    """What an operator lets the service work on.

    :param images: pools of images, in whose own pools the ledgers are, too
    :param data: erasure-coded pools, for the data of images alone
    :param data_pools: where new images of a pool have their data, if not there
    :param tiers: the pools of each tier by its name
    """

    images: tuple[str, ...]
    data: tuple[str, ...] = ()
    data_pools: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tiers: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def check(self, *arguments: Any) -> None:
        """Refuse what names a pool that is not ours, or what can be no name.

        :param arguments: places of images and snapshots, options, work; None is let pass
        :raises InvalidRequestError: the message names the first such thing
        """
        for argument in arguments:
            if argument is not None and not dataclasses.is_dataclass(argument):
                raise exceptions.InvalidRequestError(f'{argument!r}: is not what it should be')
            for problem in self._problems(argument):
                raise exceptions.InvalidRequestError(problem)

    def check_pool(self, pool: str) -> None:
        """Refuse a pool that is not one of images.

        :raises InvalidRequestError: it is none of ours
        """
        self.check(image_types.ImageRef(pool, 'any'))

    def check_image_id(self, image_id: str) -> None:
        """Refuse what can be no image's id.

        :raises InvalidRequestError: it cannot
        """
        if not _IMAGE_ID.fullmatch(image_id):
            raise exceptions.InvalidRequestError(f'image id {image_id!r}: cannot be one')

    def options_for(
        self, image: image_types.ImageRef, options: image_types.ImageOptions | None
    ) -> image_types.ImageOptions:
        """Return how a new image is made: as asked for, or as its pool's tier says."""
        return options or image_types.ImageOptions(data_pool=self.data_pools.get(image.pool))

    def of_tier(self, name: str) -> tuple[str, ...]:
        """Return the pools of a tier.

        :raises InvalidRequestError: there is no such tier
        """
        if name not in self.tiers:
            known = ', '.join(sorted(self.tiers)) or 'none: the service was given pools'
            raise exceptions.InvalidRequestError(f'tier {name}: is not there; known are {known}')
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
            yield f'object_bytes {options.object_bytes}: is no power of two from 4 KiB to 32 MiB'
        if unknown := options.features - _FEATURES:
            yield f'features {", ".join(sorted(unknown))}: are unknown'

    @staticmethod
    def _not_ours(pool: str, allowed: tuple[str, ...]) -> str:
        return f'pool {pool}: is none of those that this service works on: {", ".join(allowed)}'


def _name_problems(kind: str, name: str) -> Iterator[str]:
    if not _NAME.fullmatch(name):
        yield f'{kind} {name!r}: must be 1 to 200 characters without / and @'
