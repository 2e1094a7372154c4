"""Questions that a measurement has decided: `make bench WHAT=archiving` asks one of them again."""

NAMES = ("archiving", "dashboards", "history", "leases", "memory", "pages", "progress", "retention", "wakeups")
