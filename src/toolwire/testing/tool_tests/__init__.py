"""Test the tools of a user with calls generated from their schemas (`toolwire test`).

check_python_tools   functions of a file, in a process with an audit hook   toolwire.testing.tool_tests.python_tests
generate_cases       the generated calls of a schema                        toolwire.testing.tool_tests.cases
TOOL_CHECKS          the checks                                             toolwire.testing.tool_tests.checks
"""
