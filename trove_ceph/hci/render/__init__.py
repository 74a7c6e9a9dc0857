# SPDX-License-Identifier: Apache-2.0
"""A plan in the forms that operators deploy: Nova, Ceph, Kolla-Ansible, DevStack, the host."""
