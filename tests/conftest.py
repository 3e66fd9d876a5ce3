"""What all tests share: Hypothesis tries enough and is never late on a busy machine; on CI it always tries the same."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("ottla"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "ottla")
