"""The listeners behind the front door: every call is admitted or refused in one place, then translated
between messages and values. May import everything but `admin`."""
