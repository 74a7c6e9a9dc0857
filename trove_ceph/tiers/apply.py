# SPDX-License-Identifier: Apache-2.0
"""Application of a plan to Ceph, Cinder and Trove, one change after the other.

There is no undo, and none is needed: each change is safe by itself, and a new run after an
interruption plans what is left.
"""

import dataclasses
import functools
from collections.abc import Callable

from trove_ceph import exceptions, steps
from trove_ceph.tiers import planning, resources, systems, tier_types
from trove_ceph.tiers.changes import Change, Plan, Risk


class Application:
    """One run of ``tiers apply``, based on the state observed at its beginning.

    :param note: called with each change after its effect is observed
    """

    def __init__(
        self,
        content: tier_types.TiersFile,
        systems: systems.Systems,
        observed: resources.Observed,
        note: Callable[[Change], None],
    ):
        self._content = content
        self._systems = systems
        self._observed = observed
        self._note = note

    def make(self, change: Change) -> None:
        """Make one change and verify that it took effect.

        :raises ChangeNotSeenError: the change had no effect
        """
        self._systems.make(change, self._observed)
        self._observed = self._systems.refresh(self._observed, change.kind)
        for left in planning.plan(self._content, self._observed).changes:
            if _is_part_of(left, change):
                raise exceptions.ChangeNotSeenError(
                    f'{change}: was made, but the plan still has "{left}"; run "tiers plan" to see '
                    'more'
                )
        self._note(change)


def make_steps(plan: Plan, application: Application) -> list[steps.Step]:
    """Return a plan's changes as steps without an undo."""
    return [
        steps.Step(str(change), functools.partial(application.make, change), commits=True)
        for change in plan.changes
    ]


def run(
    content: tier_types.TiersFile,
    targets: systems.Systems,
    accepted: frozenset[Risk],
    note: Callable[[Change], None],
) -> Plan:
    """Make all changes, except those that must wait, and return the plan.

    :param accepted: the accepted consequences
    :raises InvalidTiersError: the tiers do not fit the cloud; nothing is changed
    :raises ConsequencesNotAcceptedError: a change has other consequences; nothing is changed
    :raises ChangeNotSeenError: a change had no effect; those before it are made
    """
    observed = targets.observe()
    plan = planning.plan(content, observed)
    if plan.problems:
        raise exceptions.InvalidTiersError('; '.join(plan.problems))
    waiting = plan.waiting(accepted)
    due = dataclasses.replace(
        plan, changes=tuple(change for change in plan.changes if change not in waiting)
    )
    _check_risks(due, accepted)
    application = Application(content, targets, observed, note)
    steps.run('tiers apply', make_steps(due, application))
    return plan


def _check_risks(plan: Plan, accepted: frozenset[Risk]) -> None:
    missing = {risk for change in plan.risky(accepted) for risk in change.risks} - accepted
    if not missing:
        return
    reasons = '; '.join(
        f'{change} ({", ".join(risk.value for risk in change.risks)})'
        for change in plan.risky(accepted)
    )
    flags = ' '.join(risk.flag for risk in Risk if risk in missing)
    raise exceptions.ConsequencesNotAcceptedError(
        f'nothing was changed, because of: {reasons}. To accept this, add {flags}'
    )


def _is_part_of(left: Change, made: Change) -> bool:
    if (left.kind, left.name) != (made.kind, made.name):
        return False
    return made.creates or left.attribute == made.attribute
