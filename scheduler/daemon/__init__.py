"""The programs scheduler-daemon and scheduler-agent: settings, composition, signals. No rules."""
