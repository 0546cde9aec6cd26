"""Tools: functions as tools, toolboxes, and the tools that a run offers."""
