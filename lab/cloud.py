# SPDX-License-Identifier: Apache-2.0
"""A connection to the lab's cloud, for programs that run beside it."""

import openstack


def connect(credentials: dict[str, str]) -> openstack.connection.Connection:
    """Return a connection for a user's ``OS_*`` variables; ignore the environment and files."""
    return openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        region_name=credentials['OS_REGION_NAME'],
        auth={
            'auth_url': credentials['OS_AUTH_URL'],
            'username': credentials['OS_USERNAME'],
            'password': credentials['OS_PASSWORD'],
            'project_name': credentials['OS_PROJECT_NAME'],
            'user_domain_id': credentials['OS_USER_DOMAIN_ID'],
            'project_domain_id': credentials['OS_PROJECT_DOMAIN_ID'],
        },
    )
