# SPDX-License-Identifier: Apache-2.0
"""What a fleet costs in public clouds, and what its own cluster costs or may cost."""

import importlib.resources
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions, schema_problems, yaml_file
from trove_ceph.sizing import schema
from trove_ceph.sizing.cluster import Cluster
from trove_ceph.sizing.fleet import Databases, Fleet
from trove_ceph.yaml_file import Problem

_SHIPPED = importlib.resources.files('trove_ceph.sizing') / 'prices.yaml'
_MONTHS_PER_YEAR = 12
_HOURS_PER_MONTH = 8760 / _MONTHS_PER_YEAR
#: The capital expenses of an IOPS are to be a third of the price in a public cloud, because power,
#: cooling and administration come on top (Red Hat 2016, Figure 9).
TARGET = 1 / 3


@dataclass(frozen=True)
class Price:
    """The price of volumes of one product.

    :param included_iops: that a volume has for nothing
    :param included_iops_per_gb: the same for each GB; the larger of both counts
    """

    provider: str
    product: str
    region: str
    date: str
    source: str
    currency: str
    per_gb_month: float
    per_iops_month: float
    included_iops: float
    included_iops_per_gb: float

    @property
    def name(self) -> str:
        """Provider, product, region and date."""
        return f'{self.provider} {self.product}, {self.region}, {self.date}'

    def per_month(self, one: Databases) -> float:
        """Return the price of the volume of one database for a month."""
        size_gb = one.size_bytes / units.Gi
        included = max(self.included_iops, self.included_iops_per_gb * size_gb)
        further = max(0, one.iops - included)
        return size_gb * self.per_gb_month + further * self.per_iops_month


@dataclass(frozen=True)
class Own:
    """What the own cluster costs for a month, in its currency.

    :param capital: servers and devices, spread over their lifetime
    :param power: electricity
    :param per_gb: capital for each GiB of the fleet at its end
    :param per_iops: capital for each of its provisioned operations per second; None: it has none
    """

    currency: str
    capital: float
    power: float
    per_gb: float
    per_iops: float | None


@dataclass(frozen=True)
class Comparison:
    """The fleet at its end in one public cloud, beside the own cluster.

    :param per_month: of all volumes
    :param per_iops: of one provisioned operation per second for a month; None: none are promised
    :param target_per_month: a third, which the capital expenses are to stay below
    :param own_share: own capital expenses as a share of the price; None: not given
    """

    price: Price
    per_month: float
    per_gb: float
    per_iops: float | None
    target_per_month: float
    own_share: float | None

    @property
    def meets_target(self) -> bool | None:
        """Whether the own cluster is as cheap as it is to be."""
        return None if self.own_share is None else self.own_share <= TARGET

    def as_document(self) -> dict[str, Any]:
        """Return it with names as keys, for programs."""
        document = asdict(self) | {'meets_target': self.meets_target}
        price = document.pop('price')
        return {'cloud': price} | document


def load(path: str | None) -> tuple[Price, ...]:
    """Return the prices of a table; None: of the one that the package ships.

    :raises InvalidFleetError: the table is invalid; the message names line and key
    """
    error = exceptions.InvalidFleetError
    if path is not None:
        return yaml_file.load(path, parse, error, 'prices')
    with importlib.resources.as_file(_SHIPPED) as shipped:
        return yaml_file.load(str(shipped), parse, error, 'prices')


def parse(content: Mapping[str, Any]) -> tuple[Price, ...]:
    """Return the prices of a decoded table.

    :raises Problem: a value is invalid; the error carries the path of the key
    """
    for path, what in schema_problems.problems(content, schema.PRICE_TABLE):
        raise Problem(path, what)
    return tuple(map(_price, content['prices']))


def _price(content: Mapping[str, Any]) -> Price:
    described = ('provider', 'product', 'region', 'date', 'source', 'currency')
    return Price(
        **{key: content[key] for key in described},
        per_gb_month=content['price_per_gb_month'],
        per_iops_month=content['price_per_iops_month'],
        included_iops=content['included']['iops'],
        included_iops_per_gb=content['included']['iops_per_gb'],
    )


def own(cluster: Cluster) -> Own | None:
    """Return what the cluster costs for a month; None: the fleet file has no prices of hardware."""
    hardware, fleet = cluster.request.hardware, cluster.request.fleet
    if hardware is None:
        return None
    db_devices = cluster.nodes * cluster.db_devices_per_node
    total = (
        cluster.nodes * hardware.node
        + cluster.devices * hardware.device
        + db_devices * hardware.db_device
    )
    capital = total / (hardware.years * _MONTHS_PER_YEAR)
    kilowatts = cluster.nodes * hardware.watts / 1000
    return Own(
        currency=hardware.currency,
        capital=capital,
        power=kilowatts * _HOURS_PER_MONTH * hardware.price_per_kwh,
        per_gb=capital / (fleet.data_bytes / units.Gi),
        per_iops=capital / fleet.iops if fleet.iops else None,
    )


def compare(cluster: Cluster, prices: Sequence[Price]) -> tuple[Comparison, ...]:
    """Return the price of the fleet at its end in each public cloud, beside the own cluster.

    :raises InvalidFleetError: the own hardware has another currency than a price
    """
    fleet, mine = cluster.request.fleet, own(cluster)
    found = []
    for number, price in enumerate(prices):
        if mine and mine.currency != price.currency:
            raise exceptions.InvalidFleetError(
                f'hardware.currency: {mine.currency} cannot be compared with {price.currency} of '
                f'prices[{number}] ({price.name}); convert one of them'
            )
        found.append(_comparison(fleet, price, mine))
    return tuple(found)


def _comparison(fleet: Fleet, price: Price, mine: Own | None) -> Comparison:
    # The fleet grows by further databases of the same kind.
    per_month = fleet.growth * sum(one.instances * price.per_month(one) for one in fleet.databases)
    return Comparison(
        price=price,
        per_month=per_month,
        per_gb=per_month / (fleet.data_bytes / units.Gi),
        per_iops=per_month / fleet.iops if fleet.iops else None,
        target_per_month=per_month * TARGET,
        own_share=mine.capital / per_month if mine else None,
    )
